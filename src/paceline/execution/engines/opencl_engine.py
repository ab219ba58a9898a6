"""The machine's own ceilings through OpenCL, on whatever driver is registered.

Standard library, NumPy and pyopencl only. Two kernels: a tiled matrix product and a triad.
"""

from engine import RequestError, described, imported, main, time_steps

_TILE = 16
SOURCE = """
#define TILE 16
kernel void matmul(global const float *a, global const float *b, global float *c, const int n) {
    local float left[TILE][TILE];
    local float right[TILE][TILE];
    const int row = get_local_id(1), column = get_local_id(0);
    const int i = get_global_id(1), j = get_global_id(0);
    float sum = 0.0f;
    for (int t = 0; t < n; t += TILE) {
        left[row][column] = a[i * n + t + column];
        right[row][column] = b[(t + row) * n + j];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++)
            sum = fma(left[row][k], right[k][column], sum);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[i * n + j] = sum;
}
kernel void triad(global const float *a, global const float *b, global float *c) {
    const int i = get_global_id(0);
    c[i] = a[i] + 3.0f * b[i];
}
"""


def serve(request, progress):
    """Run the kernels, check their results, and describe the device."""
    cl = imported("pyopencl")
    device = choose_device(cl, request.get("device"))
    answer = described(
        "opencl", device.version.strip(), device.platform.name, [device.name.strip()],
        platform_version=device.platform.version,
    )  # fmt: skip
    if request["action"] == "hello":
        return answer
    queue = cl.CommandQueue(cl.Context([device]))
    program = cl.Program(queue.context, SOURCE).build()
    results = [matmul(cl, queue, program, n, request, progress) for n in request["matmul_sizes"]]
    results.append(triad(cl, queue, program, request, progress))
    return dict(answer, results=results)


def choose_device(cl, place):
    """The first device that the request means; without one, a GPU if any platform has one.

    Args:
        cl: The pyopencl module.
        place: ``cpu``, ``cuda`` for a GPU, or None.
    """
    try:
        devices = [d for platform in cl.get_platforms() for d in platform.get_devices()]
    except cl.Error as error:
        raise RequestError("unsupported", "no OpenCL driver is registered (%s)" % error) from None
    gpus = [d for d in devices if d.type & cl.device_type.GPU]
    others = [d for d in devices if not d.type & cl.device_type.GPU]
    found = {"cpu": others, "cuda": gpus}.get(place, gpus + others)
    if not found:
        kind = {"cpu": "processor", "cuda": "GPU"}.get(place, "device")
        raise RequestError("unsupported", "the OpenCL drivers show no %s" % kind)
    return found[0]


def matmul(cl, queue, program, size, request, progress):
    """A square matrix product, its result checked against NumPy's."""
    import numpy

    size -= size % _TILE
    host = [numpy.random.default_rng(i).random((size, size), dtype=numpy.float32) for i in (0, 1)]
    a, b = (_buffer(cl, queue, array) for array in host)
    c = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, host[0].nbytes)
    kernel = cl.Kernel(program, "matmul")
    kernel.set_args(a, b, c, numpy.int32(size))

    def step():
        cl.enqueue_nd_range_kernel(queue, kernel, (size, size), (_TILE, _TILE))

    timing = time_steps(step, queue.finish, request["timing"], progress)
    out = numpy.empty_like(host[0])
    cl.enqueue_copy(queue, out, c)
    queue.finish()
    expected = host[0] @ host[1]
    difference = float(abs(out - expected).max() / abs(expected).max())
    return dict(timing, name="MATMUL", dtype="fp32", shape=[1, size, size, size],
                flop=2 * size**3, moved_bytes=12 * size * size,
                numerical_difference=difference)  # fmt: skip


def triad(cl, queue, program, request, progress):
    """Two streams read, one written."""
    import numpy

    count = request["memory_elements"]
    host = numpy.ones(count, dtype=numpy.float32)
    a, b = _buffer(cl, queue, host), _buffer(cl, queue, host)
    c = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, host.nbytes)
    kernel = cl.Kernel(program, "triad")
    kernel.set_args(a, b, c)

    def step():
        cl.enqueue_nd_range_kernel(queue, kernel, (count,), None)

    timing = time_steps(step, queue.finish, request["timing"], progress)
    out = numpy.empty_like(host)
    cl.enqueue_copy(queue, out, c)
    queue.finish()
    difference = float(abs(out - 4.0).max())
    return dict(timing, name="ELEMENTWISE", dtype="fp32", shape=[count, 1, 3], flop=2 * count,
                moved_bytes=12 * count, numerical_difference=difference)  # fmt: skip


def _buffer(cl, queue, array):
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(queue.context, flags, hostbuf=array)


if __name__ == "__main__":
    main(serve)
