"""What ``foretell observe --json`` prints."""

from typing import Any

from foretell.entities.observation import Observation
from foretell.entities.records import to_record


def build_observation_record(observation: Observation) -> dict[str, Any]:
    """Seconds, cores or shares of a GPU, bytes a second; where there is no ``cycle``, it says ``why``."""
    recorded = observation.recorded
    return {
        "subject": observation.subject,
        "exit_code": observation.exit_code,
        "period_s": observation.period_s,
        "resources": {
            resource.value: {
                "mean": recorded.series[resource].mean,
                "cycle": None if found.cycle is None else {**to_record(found.cycle), "share": found.cycle.share},
                "why": found.why,
            }
            for resource, found in observation.cycles.items()
        },
        "elapsed_s": recorded.elapsed_s,
        "interval_s": recorded.interval_s,
        "samples": len(recorded.cpu.values),
        "sampling_share": recorded.sampling_cpu_s / recorded.elapsed_s,
        "processes": recorded.processes,
        "gpus": recorded.gpus,
        "gpu_memory_bytes": None if recorded.gpu_memory is None else float(recorded.gpu_memory.values.max()),
        "load": to_record(recorded.load),
        "disturbed": recorded.load.disturbs,
        "notes": list(observation.notes),
        "run": observation.run_id,
        "file": observation.path,
    }
