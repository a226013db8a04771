"""What can go wrong, one class a kind.

Every message says what was being done, the offending name and value, what is allowed, and the fix. The command line
turns these into one paragraph and an exit code: 2 where the user has something to change in the call, 1 where the
work itself failed. No traceback reaches a user for something a user did.
"""

from __future__ import annotations


class RatenormError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 1


class UsageError(RatenormError):
    """The call cannot be carried out as it stands: wrong option, wrong type, folder in use."""

    exit_code = 2


class SettingError(UsageError, ValueError):
    """A setting of a method, a layer or a coding lies outside what is allowed."""


class DataError(RatenormError):
    """A data set is missing, truncated, corrupt or does not fit."""


class FileFormatError(RatenormError):
    """A file (network, checkpoint, record) is damaged, foreign, or of an unknown version."""


class StorageError(RatenormError):
    """A file cannot be written: no room, no permission. What was there before is untouched."""


class ConversionError(RatenormError):
    """A network, or a part of it, cannot be converted."""


class CalibrationError(RatenormError):
    """A threshold method cannot answer: no data, bad data, a layer that never fires."""


class SimulationError(RatenormError):
    """An engine was handed something it cannot run."""


class TrainingError(RatenormError):
    """Training cannot go on: NaN, infinity, wrong resume."""


class AccuracyWarning(UserWarning):
    """A network was left more than a point below its source."""


class ExchangeWarning(UserWarning):
    """A file for other simulators cannot say all that a network needs to run right."""
