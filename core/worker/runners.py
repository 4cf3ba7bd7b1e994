"""The jobs a worker can do: one runner per kind. Imported in the child only, since it brings torch and the kernels."""

from core.kernels.backend import CancelFlag
from core.pipeline.engine import Engine
from core.pipeline.generate import generate
from core.request import GenerationRequest
from core.worker.events import JobKind, StartJob
from core.worker.process import Reporter, Runner


def make_runners() -> dict[str, Runner]:
    """Runners sharing one warm engine."""
    engine = Engine()

    def run_generate(job: StartJob, report: Reporter, cancel: CancelFlag) -> dict:
        request = GenerationRequest.from_json(job.payload)
        return generate(engine, request, job.output_path, report, cancel, overwrite=job.overwrite)

    return {JobKind.GENERATE.value: run_generate}
