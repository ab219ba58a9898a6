"""The servers of engines, with the settings of the plan: Compose, Kubernetes, KServe, SkyServe.

Each comes with a load test, which sends the very load of the plan and whose result
``paceline calibrate`` reads.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from paceline.deployment import launch, shell
from paceline.deployment.documents import without_none, yaml_text
from paceline.deployment.facts import api_version, engine_servers, sizing
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, assumptions_of
from paceline.deployment.server_splits import ServerSplit
from paceline.deployment.settings import DeploySettings
from paceline.deployment.targets import docker
from paceline.deployment.targets import kubernetes as k8s
from paceline.deployment.targets import skypilot as sky
from paceline.errors import InvalidInputError, MissingFactError
from paceline.model.graph.engine_features import (
    OWN_BLOCK,
    Speculation,
    read_adapters,
    read_speculation,
)
from paceline.model.items import StatedItem
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planfile import PlannedService
from paceline.values import dataclass

#: Options of these targets beside their own.
SERVER_OPTIONS = ("weights", "prometheus", "draft", "adapters")
_ROUTER_PORT = 8080
_TOKEN = "HF_TOKEN"
_WEIGHTS = "the weights to serve (a repository on Hugging Face, or a folder)"
_DRAFT = "the weights of the model that guesses tokens (likewise)"
#: A replica loads its weights before it answers: seconds that it is given.
_START_S = 1800
#: A test sends requests for so many seconds, and at least so many of them.
_TEST_S, _FEWEST = 300, 200
#: Spread of lengths that are drawn evenly up to nearly twice their mean.
_WIDEST = 99 / 100
#: Lengths reach so many spreads beyond their mean.
_SPREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An engine's server of a plan.

    Attributes:
        job: As one replica.
        facts: Of the engine, from ``engine_servers.toml``.
        image: Of the container.
        weights: What is served.
        length: Tokens of a request at most; None where the plan has none.
        features: Options for what its requests share, ask for and guess.
        adapters: ``NAME=PATH`` of those that are named.
    """

    job: Job
    service: PlannedService
    facts: dict[str, Any]
    image: str
    weights: str
    length: int | None
    features: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()

    @property
    def port(self) -> int:
        """Where a replica answers."""
        return int(self.facts["port"])

    def words(self) -> list[str]:
        """The command of a replica."""
        options, choice, service = self.facts["options"], self.job.choice, self.service
        split = self.split
        values = {
            "host": self.facts["host"],
            "port": self.port,
            "name": self.job.name,
            "ranks": split.ranks(service.num_ranks),
            "max_requests": split.told(service.max_requests),
            "chunk_tokens": split.told(service.chunk_tokens),
            "memory_frac": service.memory_frac,
            "length": self._length(),
            "cache": self.facts["caches"].get(service.cache_format),
            "format": self.facts["formats"].get(service.weight_format or choice.precision),
            "dtype": self.facts["dtypes"].get(choice.precision),
        }
        words = [word.format(weights=self.weights) for word in self.facts["command"]]
        for name, option in options.items():
            words += [] if values[name] is None else [option, f"{values[name]}"]
        named = [self.facts["adapter_names"], *self.adapters] if self.adapters else []
        return [*words, *split.words(), *self.features, *named, *self.facts["also"]]

    @property
    def split(self) -> ServerSplit:
        """How the devices of a replica share the model."""
        return ServerSplit(
            engine=self.service.engine.split()[0],
            strategy=Strategy.parse(self.job.choice.strategy),
            facts=self.facts.get("splits", {}),
        )

    def _length(self) -> int | None:
        """Tokens of a request, or of all in flight where the server asks for those."""
        if self.length is None or not self.facts.get("shares_length"):
            return self.length
        return self.length * (self.service.max_requests or 1)


def is_engine_service(job: Job) -> bool:
    """Whether a plan's choice is served by an engine."""
    return job.choice.service is not None and bool(job.choice.service.engine)


def server_of(job: Job, settings: DeploySettings) -> Server:
    """The server of a choice.

    Raises:
        MissingFactError: The weights or the image are not known.
        InvalidInputError: The engine has no server on record.
    """
    service = job.choice.service
    assert service is not None
    engine = service.engine.split()[0]
    facts = engine_servers().get(engine)
    if facts is None:
        known = ", ".join(engine_servers())
        raise InvalidInputError(
            f"how the server of {engine} is started is not on record",
            hint=f"plan with --framework {known.replace(', ', ' or ')}",
        )
    workload = job.workload
    tokens = (workload.prompt_tokens or 0) + (workload.output_tokens or 0)
    longest = tokens * (1 + _SPREADS * service.length_spread)
    server = Server(
        job=job,
        service=service,
        facts=facts,
        image=settings.image or facts["image"].get(job.stack.platform, ""),
        weights=settings.need("weights", _WEIGHTS),
        length=2 ** math.ceil(math.log2(longest + 16)) if tokens else None,
        features=tuple(_features(service, facts, settings)),
        adapters=tuple(settings.options.get("adapters", "").split()) if service.adapters else (),
    )
    server.split.check_machines(service.num_ranks, job.devices_per_node, server.words())
    server = replace(server, job=_replica(job, service))
    if not server.image:
        program, *words = server.words()
        command = shlex.join((program.rpartition("/")[2], *words))
        raise MissingFactError(
            f"no image of {engine} for {job.stack.platform} is on record",
            hint=f"give one with `--image NAME:TAG`, or start it without: `{command}`",
        )
    return server


def _features(
    service: PlannedService, facts: Mapping[str, Any], settings: DeploySettings
) -> Iterator[str]:
    """Options for what requests share, ask for and guess.

    Raises:
        MissingFactError: The weights of the model that guesses are not known.
        InvalidInputError: The server does not do so, or not beside adapters.
    """
    asked: dict[str, dict[str, Any]] = {"prefix": {}} if service.prefix_share else {}
    if service.adapters:
        adapters = read_adapters(service.adapters)
        rank = _known_rank(adapters.rank, facts.get("adapter_ranks"))
        asked["adapters"] = {"held": adapters.held, "count": adapters.count, "rank": rank}
    if service.speculation:
        guesses = read_speculation(service.speculation)
        _check_beside(guesses, facts, has_adapters=bool(service.adapters))
        draft = settings.need("draft", _DRAFT) if guesses.model else ""
        values = {"tokens": guesses.tokens, "checked": guesses.tokens + 1, "draft": draft}
        asked["model" if guesses.model else guesses.draft] = values
    for name, values in asked.items():
        if name not in facts["features"]:
            able = " or ".join(
                one for one, row in engine_servers().items() if name in row["features"]
            )
            raise InvalidInputError(
                f"how {service.engine.split()[0]} is asked for `{name}` is not on record",
                hint=f"plan with --framework {able}",
            )
        yield from (word.format(**values) for word in facts["features"][name])


def _check_beside(
    guesses: Speculation, facts: Mapping[str, Any], *, has_adapters: bool
) -> None:  # fmt: skip
    able = facts.get("guesses_beside_adapters")
    if has_adapters and able is not None and guesses.draft not in able:
        raise InvalidInputError(
            f"this server serves adapters with no guesses but those of {', '.join(able)}",
            hint=f"plan with --speculate draft={able[0]},…, or with --framework vllm",
        )


def _known_rank(rank: int, known: list[int] | None) -> int:
    """The least rank that the server knows and adapters fit into."""
    return rank if known is None else min(one for one in known if one >= rank)


def compose(job: Job, settings: DeploySettings) -> Deployment:
    """A Compose file of the replicas of one machine, behind a router where there are several."""
    server = server_of(job, settings)
    count = max(server.service.num_replicas // job.num_nodes, 1)
    names = [f"engine-{number}" for number in range(count)]
    services = {
        name: _compose_service(server, number, is_alone=count == 1)
        for number, name in enumerate(names)
    }
    files = []
    if count > 1:
        services["router"] = {
            "image": sizing()["router"]["image"],
            "ports": [f"{server.port}:{_ROUTER_PORT}"],
            "volumes": ["./router.conf:/etc/nginx/conf.d/default.conf:ro"],
            "depends_on": {name: {"condition": "service_healthy"} for name in names},
        }
        files.append(DeployFile(path="router.conf", text=_router(names, server.port)))
    needs = [*launch.driver_need(job), _token_need(server)]
    if job.num_nodes > 1:
        needs.append(f"the same on each of {job.num_nodes} machines, and a balancer before them")
    document = {"name": job.name, "services": services}
    text = yaml_text([document], comments=launch.header(job, needs))
    return _deployment(
        "docker", server, settings,
        [DeployFile(path="compose.yaml", text=text), *files], "docker compose up", needs,
    )  # fmt: skip


def kubernetes(job: Job, settings: DeploySettings) -> Deployment:
    """A Deployment with its Service; with ``prometheus`` it grows with the requests that wait."""
    server = server_of(job, settings)
    one, labels = server.job, k8s.labels(server.job)
    metadata, prometheus = k8s.metadata(one, settings), settings.options.get("prometheus")
    template = {
        "metadata": {"labels": labels, "annotations": _scraped(server)},
        "spec": _pod(server, settings),
    }
    deployment = {
        "apiVersion": api_version("deployment"),
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": server.service.num_replicas,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }
    service = {
        "apiVersion": api_version("core"),
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": labels,
            "ports": [{"name": "http", "port": server.port, "targetPort": "http"}],
        },
    }
    documents = [deployment, service]
    needs = [*launch.driver_need(one), *k8s.device_need(one, settings), _token_need(server)]
    if prometheus:
        documents.append(_scaled(server, settings, prometheus))
        needs.append("KEDA in the cluster, and a Prometheus that scrapes annotated pods")
    text = yaml_text(documents, comments=launch.header(one, needs))
    return _deployment(
        "kubernetes", server, settings,
        [DeployFile(path="service.yaml", text=text)], "kubectl apply -f service.yaml", needs,
    )  # fmt: skip


def kserve(job: Job, settings: DeploySettings) -> Deployment:
    """An InferenceService with the engine's own container."""
    server = server_of(job, settings)
    one, count = server.job, server.service.num_replicas
    prometheus = settings.options.get("prometheus")
    annotations = {"serving.kserve.io/deploymentMode": "RawDeployment"}
    pod = _pod(server, settings)
    pod["containers"][0]["name"] = "kserve-container"
    predictor = {"minReplicas": count, "maxReplicas": count, **pod}
    if prometheus:
        annotations["serving.kserve.io/autoscalerClass"] = "keda"
        external = {
            "metric": {
                "backend": "prometheus",
                "serverAddress": prometheus,
                "query": _query(server),
            },
            "target": {"type": "AverageValue", "averageValue": str(_most_waiting(server))},
        }
        metrics = [{"type": "External", "external": external}]
        predictor |= {"maxReplicas": 2 * count, "autoScaling": {"metrics": metrics}}
    metadata = k8s.metadata(one, settings)
    document = {
        "apiVersion": api_version("inference_service"),
        "kind": "InferenceService",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"predictor": predictor},
    }
    needs = ["KServe in the cluster", *launch.driver_need(one), *k8s.device_need(one, settings)]
    needs.append(_token_need(server))
    text = yaml_text([document], comments=launch.header(one, needs))
    return _deployment(
        "kserve", server, settings,
        [DeployFile(path="inference-service.yaml", text=text)],
        "kubectl apply -f inference-service.yaml", needs,
    )  # fmt: skip


def skyserve(job: Job, settings: DeploySettings) -> Deployment:
    """A SkyServe file: replicas with a probe, which grow with the requests that come."""
    server = server_of(job, settings)
    count, service = server.service.num_replicas, server.service
    # What the plan has a replica complete at the slow end of its interval.
    most_per_s = service.capacity_requests_per_s.low / count
    policy = {
        "min_replicas": count,
        "max_replicas": 2 * count,
        "target_qps_per_replica": round(
            min(most_per_s, service.requests_per_s / count * sizing()["router"]["headroom"]), 3
        ),
    }
    probe = {"path": server.facts["ready"], "initial_delay_seconds": _START_S}
    resources = sky.resources(server.job, settings)
    task = without_none(
        {
            "name": job.name,
            "service": {"readiness_probe": probe, "replica_policy": policy},
            "resources": {**resources, "image_id": f"docker:{server.image}", "ports": server.port},
            "envs": {_TOKEN: None} if _is_named(server) else None,
            "run": shell.join(server.words()) + "\n",
        }
    )
    needs = [*launch.driver_need(job), _token_need(server)]
    text = yaml_text([task], comments=launch.header(job, needs))
    return _deployment(
        "skypilot", server, settings, [DeployFile(path="serve.yaml", text=text)],
        f"sky serve up -n {job.name} serve.yaml", needs,
    )  # fmt: skip


def load_test(server: Server) -> str:
    """A script that sends the plan's load by vLLM's own client and keeps what requests saw."""
    service, choice, workload = server.service, server.job.choice, server.job.workload
    facts = {
        "paceline_model": workload.model,
        "gpu": choice.place.device,
        "n_gpus": service.num_ranks,
        "replicas": service.num_replicas,
        "precision": choice.precision,
        "framework": f"{service.engine.split()[0]} {server.facts['release']}".strip(),
        "isl": workload.prompt_tokens,
        "osl": workload.output_tokens,
    } | ({"item": _item(service)} if _item(service) else {})
    found = math.floor(service.prefix_share * (workload.prompt_tokens or 0))
    read = max((workload.prompt_tokens or 0) - found, 1)
    words: list[shell.Word] = [
        "vllm", "bench", "serve", "--backend", "openai",
        "--base-url", shell.Variable("SERVER"), "--model", server.weights,
        "--served-model-name", server.job.name,
        "--dataset-name", "random", "--random-input-len", str(read),
        *(["--random-prefix-len", str(found)] if found else []),
        *(["--lora-modules", *_names(server)] if server.adapters else []),
        "--random-output-len", str(workload.output_tokens), "--ignore-eos",
        "--random-range-ratio", f"{min(math.sqrt(3) * service.length_spread, _WIDEST):.3g}",
        "--request-rate", f"{service.requests_per_s:g}", "--burstiness", "1", "--seed", "0",
        "--num-prompts", str(max(round(_TEST_S * service.requests_per_s), _FEWEST)),
        "--percentile-metrics", "ttft,tpot,e2el",
        "--metric-percentiles", f"50,{service.percentile},99",
        "--save-result", "--result-filename", "load-test.json",
        "--metadata", *(f"{name}={value}" for name, value in facts.items()),
    ]  # fmt: skip
    told = f"first token {_told(choice.ttft_s)}, per token {_told(choice.latency_s)}"
    return "\n".join(
        (
            "#!/bin/sh",
            "# The load of the plan, as vLLM's client sends it (pip install vllm): "
            f"{service.requests_per_s:g} requests/s.",
            f"# The plan expects, of {service.percentile} of 100 requests: {told}.",
            "# Then: paceline calibrate load-test.json",
            "set -eu",
            f'SERVER="${{SERVER:-http://localhost:{server.port}}}"',
            shell.join(words),
            "",
        )
    )


def _item(service: PlannedService) -> str:
    """What requests share, ask for and guess, as a job's line has it.

    With `@` for `=`, which the client reads as the end of a name.
    """
    item = StatedItem(
        prefix_share=service.prefix_share or None,
        adapters=read_adapters(service.adapters) if service.adapters else None,
        speculation=read_speculation(service.speculation) if service.speculation else None,
    )
    return str(item).replace("=", "@")


def _names(server: Server) -> list[str]:
    return [one.partition("=")[0] for one in server.adapters]


def _feature_needs(server: Server) -> list[str]:
    """What guesses and adapters need beside their options."""
    service = server.service
    needs = []
    if service.adapters and not server.adapters:
        needs.append(
            "the adapters, by `--set adapters='NAME=PATH …'`; the load test then asks for them, "
            "and else for the base"
        )
    if service.speculation.startswith(f"draft={OWN_BLOCK},"):
        needs.append("weights that have blocks of their own for guesses, as DeepSeek-V3's have")
    return needs


def _told(seen: Any) -> str:
    return "unknown" if seen is None else f"{seen.mid:.3g} s ({seen.low:.3g} to {seen.high:.3g})"


def _deployment(
    target: str, server: Server, settings: DeploySettings,
    files: list[DeployFile], command: str, needs: list[str],
) -> Deployment:  # fmt: skip
    test = DeployFile(path="load-test.sh", text=load_test(server))
    used = f"{server.service.requests_per_s:g} requests/s on {server.service.num_replicas} replicas"
    told = f"engine settings of the plan, for {used}; load-test.sh sends that load"
    return Deployment(
        target=target,
        files=(*files, test),
        command=command,
        needs=(*filter(None, needs), *_feature_needs(server)),
        assumptions=(told, *assumptions_of(server.job, settings)),
    )


def _replica(job: Job, service: PlannedService) -> Job:
    """The job as one replica: its share of the machine it is on."""
    if not job.devices_per_node:
        return job
    share = min(1, service.num_ranks / job.devices_per_node)
    return replace(
        job,
        num_nodes=1,
        devices_per_node=service.num_ranks,
        cpus_per_node=max(1, math.floor(job.cpus_per_node * share)),
        memory_bytes=math.floor(job.memory_bytes * share),
        shm_bytes=math.floor(job.shm_bytes * share),
    )


def _compose_service(server: Server, number: int, *, is_alone: bool) -> dict[str, Any]:
    first = number * server.service.num_ranks
    devices = [str(first + rank) for rank in range(server.service.num_ranks)]
    reserved = {"driver": "nvidia", "device_ids": devices, "capabilities": ["gpu"]}
    ready = f"http://localhost:{server.port}{server.facts['ready']}"
    probe = f"import urllib.request as u; u.urlopen('{ready}')"
    is_cuda = server.job.stack.platform == "cuda"
    weights = docker.mount(server.weights, "", server.weights, is_read_only=True)
    found: dict[str, Any] = {
        "image": server.image,
        "entrypoint": [docker.literal(word) for word in server.words()],
        "ports": [f"{server.port}:{server.port}"] if is_alone else None,
        "environment": _environment(server, devices) or None,
        "volumes": None if _is_named(server) else [weights],
        "ipc": "host",
        "healthcheck": {
            "test": ["CMD", "python3", "-c", probe],
            "interval": "10s",
            "start_period": f"{_START_S}s",
        },
        "deploy": {"resources": {"reservations": {"devices": [reserved]}}} if is_cuda else None,
        "devices": None if is_cuda else ["/dev/kfd", "/dev/dri"],
        "group_add": None if is_cuda else ["video"],
        "restart": "unless-stopped",
    }
    return without_none(found)


def _environment(server: Server, devices: list[str]) -> dict[str, str]:
    """Of a replica: its token, and its own devices where a container sees those of all."""
    found = {_TOKEN: f"${{{_TOKEN}:-}}"} if _is_named(server) else {}
    if server.job.stack.platform == "rocm":
        found["HIP_VISIBLE_DEVICES"] = ",".join(devices)
    return found


def _router(names: list[str], port: int) -> str:
    """A balancer that gives requests to who has fewest, and waits as long as an answer takes."""
    servers = "\n".join(f"  server {name}:{port};" for name in names)
    return (
        f"upstream engines {{\n  least_conn;\n{servers}\n}}\n"
        f"server {{\n  listen {_ROUTER_PORT};\n  location / {{\n"
        "    proxy_pass http://engines;\n    proxy_buffering off;\n"
        "    proxy_read_timeout 3600s;\n  }\n}\n"
    )


def _pod(server: Server, settings: DeploySettings) -> dict[str, Any]:
    one = server.job
    ready = {"path": server.facts["ready"], "port": "http"}
    container = {
        "name": "engine",
        "image": server.image,
        "command": [k8s.literal(word) for word in server.words()],
        "ports": [{"name": "http", "containerPort": server.port}],
        "env": [_token_variable(one)] if _is_named(server) else None,
        "resources": k8s.resources(one),
        "startupProbe": {
            "httpGet": ready,
            "periodSeconds": 10,
            "failureThreshold": _START_S // 10,
        },
        "readinessProbe": {"httpGet": ready, "periodSeconds": 5},
        "securityContext": k8s.container_security(one),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    size = f"{one.shm_bytes // 2**20}Mi"
    return without_none(
        {
            "nodeSelector": k8s.node_selector(one, settings) or None,
            "tolerations": k8s.tolerations(one, settings) or None,
            "serviceAccountName": settings.options.get("service-account"),
            "containers": [without_none(container)],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}],
        }
    )


def _scaled(server: Server, settings: DeploySettings, prometheus: str) -> dict[str, Any]:
    """Replicas by the number of requests that wait."""
    count = server.service.num_replicas
    trigger = {
        "type": "prometheus",
        "metadata": {
            "serverAddress": prometheus,
            "query": _query(server),
            "threshold": str(_most_waiting(server)),
        },
    }
    return {
        "apiVersion": api_version("scaled_object"),
        "kind": "ScaledObject",
        "metadata": k8s.metadata(server.job, settings),
        "spec": {
            "scaleTargetRef": {"name": server.job.name},
            "minReplicaCount": count,
            "maxReplicaCount": 2 * count,
            "triggers": [trigger],
        },
    }


def _query(server: Server) -> str:
    label = server.facts.get("queue_label")
    named = f'{{{label}="{server.job.name}"}}' if label else ""
    return f"sum({server.facts['queue']}{named})"


def _most_waiting(server: Server) -> int:
    """Requests that wait for a replica while the first token is as late as the plan has it."""
    first = server.job.choice.ttft_s
    each_per_s = server.service.capacity_requests_per_s.low / server.service.num_replicas
    return max(1, math.ceil(each_per_s * (first.mid if first else 1)))


def _scraped(server: Server) -> dict[str, str]:
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(server.port)}


def _is_named(server: Server) -> bool:
    """Whether the weights are of a repository, and no folder."""
    return not server.weights.startswith(("/", "."))


def _token_need(server: Server) -> str:
    if _is_named(server):
        secret = f"{server.job.name}-credentials"
        return f"{_TOKEN}, where the weights are gated: of the shell, or of the Secret {secret}"
    return f"the weights in {server.weights} on each machine"


def _token_variable(job: Job) -> dict[str, Any]:
    key = {"name": f"{job.name}-credentials", "key": _TOKEN, "optional": True}
    return {"name": _TOKEN, "valueFrom": {"secretKeyRef": key}}
