"""What the figures of a torture have to be."""

from __future__ import annotations

from typing import Any


def failures(found: dict[str, Any]) -> list[str]:
    """Every promise that was not kept, in words."""
    wrong: list[str] = []

    def want(trial: str, figures: dict[str, Any], **wanted: Any) -> None:
        wrong.extend(f"{trial}: {k} is {figures.get(k)}" for k, v in wanted.items() if figures.get(k) != v)

    if "kills" in found:
        want("kills", found["kills"], unreadable_checkpoints=0, different_results=0)
    if "interrupts" in found:
        want("interrupts", found["interrupts"], wrong_exit_codes=0, orphans=0, different_results=0)
    for command in ("reproduce", "sweep"):
        if command in found:
            zero = {"wrong_exit_codes": 0, "orphans": 0, "different_results": 0, "strays_or_locks_left": 0}
            want(command, found[command], **zero)
    if "disk" in found:
        count = found["disk"]["positions"]
        want("disk", found["disk"], old_checkpoint_intact=count, reported_as_our_error=count, temporary_files_left=0)
    for kind in ("mutants", "forged"):
        for name, figures in found.get(kind, {}).items():
            zero = {"crashes": 0, "other errors": 0, "hangs": 0, "out of memory": 0}
            want(f"{kind}, {name}", {"accepted changed": 0, **figures}, **zero, **{"accepted changed": 0})
    if "processes" in found:
        equal = ("calibrated_files", "accuracies", "evaluations", "restarted_networks", "restarted_losses")
        want("processes", found["processes"], **{f"{name}_equal": True for name in equal})
        for how in ("from_the_same_state", "in_float64"):
            if not found["processes"].get(f"largest_difference_of_losses_{how}", 1.0) <= 1e-6:
                wrong.append(f"processes: losses {how.replace('_', ' ')} differ by more than 1e-6")
    for engine, figures in found.get("memory", {}).items():
        if not figures.get("growth_percent", 100) <= 5:
            wrong.append(f"memory, {engine} engine: grows by {figures.get('growth_percent')} %")
    return wrong
