"""Measure an exported ONNX model in ONNX Runtime, OpenVINO, TVM or TensorRT.

Standard library, NumPy and whichever of the four this Python has. The model file and the outputs
of the framework that exported it come with the request, so every engine's numbers are checked.
"""

import importlib
import time

from engine import (
    SEQUENCES,
    RequestError,
    about_cell,
    described,
    main,
    sample_inputs,
    time_steps,
    unsupported,
)


def serve(request, progress):
    """Load, time, and describe one cell."""
    engines = {
        "onnxruntime": _OnnxRuntime,
        "openvino": _OpenVino,
        "tvm": _Tvm,
        "tensorrt": _TensorRt,
    }
    try:
        engine = engines[request["framework"]]()
    except ImportError as error:
        text = "this Python has no %s (%s)" % (request["framework"], error)
        raise RequestError("no-framework", text) from None
    if request["action"] == "hello":
        return describe(engine)
    unsupported(
        request,
        precision=("fp32",),
        compiler=engine.compilers,
        mode=("forward",),
        num_devices=(1,),
        device=engine.places,
    )
    if not request.get("reference") and not isinstance(engine, _OnnxRuntime):
        raise RequestError("unsupported", "files of the user's own run on the stack onnxruntime")
    return measure(engine, request, progress)


def describe(engine):
    """What this Python can run on."""
    return described(engine.name, engine.version(), engine.platform(), engine.devices())


def measure(engine, request, progress):
    """Time one cell."""
    import numpy

    kind = request.get("kind") or "features"
    inputs = _inputs(request) if request.get("shape") or kind in SEQUENCES else None
    progress(stage="compiling")
    started = time.perf_counter()
    run, synchronize = engine.load(request, inputs)
    first = numpy.asarray(run())
    compile_s = time.perf_counter() - started
    answer = dict(describe(engine), **time_steps(run, synchronize, request["timing"], progress))
    answer["compile_s"] = None if request["compiler"] == "eager" else compile_s
    answer["num_parameters"] = None
    answer.update(about_cell(request, kind))
    if request.get("reference"):
        answer["numerical_difference"] = difference(first.reshape(-1), request["reference"])
    return answer


def _inputs(request):
    """The one input of a model that was exported to be measured."""
    import numpy

    kind = request["kind"]
    buffer, full = sample_inputs(kind, request["shape"], request["batch"], request["seq"], 1000)
    dtype = numpy.int64 if kind in SEQUENCES else numpy.float32
    return numpy.frombuffer(buffer, dtype=dtype).reshape(full)


def difference(outputs, reference):
    """Largest difference from the exporting framework's outputs, relative to their largest."""
    largest = max(abs(value) for value in reference) or 1.0
    return max(abs(float(outputs[i]) - value) for i, value in enumerate(reference)) / largest


class _Engine(object):
    """A library that compiles a file, on the processor unless it says otherwise.

    Attributes:
        name: Of the library, as it is imported.
        compilers: What it can be asked for.
        places: Where it runs, its own first.
    """

    compilers = ("compiled",)
    places = ("cpu",)

    def __init__(self):
        self.library = importlib.import_module(self.name)

    def version(self):
        """Exact release."""
        return self.library.__version__

    def platform(self):
        """What it runs on."""
        return self.places[0]

    def devices(self):
        """Devices beyond the CPU that the library tells of."""
        return []


class _OnnxRuntime(_Engine):
    """Graph optimisations off (``eager``) or all on."""

    name = "onnxruntime"
    compilers = ("compiled", "eager")
    places = ("cpu", "cuda")

    def platform(self):
        """What it runs on."""
        return "cuda" if self.devices() else "cpu"

    def devices(self):
        """Providers beyond the CPU."""
        return [p for p in self.library.get_available_providers() if p.startswith("CUDA")]

    def load(self, request, inputs):
        """The callable that is timed, and one that waits for it."""
        library = self.library
        options = library.SessionOptions()
        if request.get("threads"):
            options.intra_op_num_threads = request["threads"]
            options.inter_op_num_threads = 1
        level = library.GraphOptimizationLevel
        is_plain = request["compiler"] == "eager"
        options.graph_optimization_level = (
            level.ORT_DISABLE_ALL if is_plain else level.ORT_ENABLE_ALL
        )
        wanted = "CUDAExecutionProvider" if request["device"] == "cuda" else "CPUExecutionProvider"
        session = library.InferenceSession(request["onnx"], options, providers=[wanted])
        if session.get_providers()[0] != wanted:
            raise RequestError("unsupported", "ONNX Runtime could not load %s" % wanted)
        feed = self._feed(session, request, inputs)
        return lambda: session.run(None, feed)[0], lambda: None

    def _feed(self, session, request, inputs):
        """What the session takes: a file of the user's own says itself which inputs it has."""
        if inputs is not None:
            return {session.get_inputs()[0].name: inputs}
        return {one.name: self._values(one, request) for one in session.get_inputs()}

    def _values(self, one, request):
        """Ones for an input; its open extents are the batch, then length or side.

        A one is a token, a position and a mask that every model has.
        """
        import numpy

        named = {"float": "float32", "double": "float64"}
        dtype = one.type[len("tensor(") : -1]
        dtype = named.get(dtype, dtype)
        if dtype not in ("float16", "float32", "float64", "bool", "int32", "int64"):
            raise RequestError("unsupported", "its input `%s` is a %s" % (one.name, one.type))
        free = (request.get("image_size") or 224) if len(one.shape) > 3 else request["seq"]
        shape = [n if isinstance(n, int) else free for n in one.shape]
        if shape and not isinstance(one.shape[0], int):
            shape[0] = request["batch"]
        elif shape and shape[0] != request["batch"]:
            text = "the file fixes %d items; measure --batch %d"
            raise RequestError("unsupported", text % (shape[0], shape[0]))
        return numpy.ones(shape, dtype=dtype)


class _OpenVino(_Engine):
    """Always compiled."""

    name = "openvino"

    def version(self):
        """Release without the build behind it."""
        return self.library.__version__.split("-")[0]

    def devices(self):
        """Devices beyond the CPU."""
        return [d for d in self.library.Core().available_devices if d != "CPU"]

    def load(self, request, inputs):
        """The callable that is timed, and one that waits for it."""
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if request.get("threads"):
            settings["INFERENCE_NUM_THREADS"] = request["threads"]
        compiled = self.library.Core().compile_model(request["onnx"], "CPU", settings)
        job = compiled.create_infer_request()
        job.set_input_tensor(self.library.Tensor(inputs))

        def run():
            job.infer()
            return job.get_output_tensor().data

        return run, lambda: None


class _Tvm(_Engine):
    """Imported into Relax and compiled with its standard pipeline, untuned."""

    name = "tvm"

    def load(self, request, inputs):
        """The callable that is timed, and one that waits for it."""
        import onnx
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        tvm = self.library
        module = from_onnx(onnx.load(request["onnx"]), keep_params_in_input=False)
        with tvm.transform.PassContext(opt_level=3):
            built = relax.build(module, target=_tvm_target(tvm))
        machine = relax.VirtualMachine(built, tvm.cpu())
        argument = tvm.runtime.tensor(inputs)

        def run():
            result = machine["main"](argument)
            return (result if hasattr(result, "numpy") else result[0]).numpy()

        return run, lambda: None


def _tvm_target(tvm):
    """This processor's instruction set, where the release can be told of it."""
    try:
        return tvm.target.Target.from_device(tvm.cpu())
    except (ValueError, RuntimeError, AttributeError):
        return tvm.target.Target("llvm")


class _TensorRt(_Engine):
    """An engine built from the ONNX file, on the first GPU, which the driver tells of."""

    name = "tensorrt"
    compilers = ("tensorrt",)
    places = ("cuda",)

    def load(self, request, inputs):
        """The callable that is timed, and one that waits for it."""
        import numpy
        from cuda.bindings import runtime

        library = self.library
        logger = library.Logger(library.Logger.WARNING)
        builder = library.Builder(logger)
        network = builder.create_network(0)
        parser = library.OnnxParser(network, logger)
        if not parser.parse_from_file(request["onnx"]):
            raise RequestError("unsupported", "TensorRT: %s" % parser.get_error(0))
        plan = builder.build_serialized_network(network, builder.create_builder_config())
        engine = library.Runtime(logger).deserialize_cuda_engine(plan)
        context = engine.create_execution_context()
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        output = numpy.empty(tuple(engine.get_tensor_shape(names[1])), dtype=numpy.float32)
        _, on_device = runtime.cudaMalloc(inputs.nbytes)
        _, out_device = runtime.cudaMalloc(output.nbytes)
        to_device = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        runtime.cudaMemcpy(on_device, inputs.ctypes.data, inputs.nbytes, to_device)
        context.set_tensor_address(names[0], on_device)
        context.set_tensor_address(names[1], out_device)
        _, stream = runtime.cudaStreamCreate()

        def run():
            context.execute_async_v3(int(stream))
            return output

        def synchronize():
            runtime.cudaStreamSynchronize(stream)

        run()
        synchronize()
        to_host = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        runtime.cudaMemcpy(output.ctypes.data, out_device, output.nbytes, to_host)
        return run, synchronize


if __name__ == "__main__":
    main(serve)
