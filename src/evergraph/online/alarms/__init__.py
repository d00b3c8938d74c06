"""When the predict-then-learn history says that something has changed."""

from evergraph.online.alarms.alarm import KINDS, Alarm, AlarmLog, AlarmNews
from evergraph.online.alarms.watch import Watch

__all__ = ["KINDS", "Alarm", "AlarmLog", "AlarmNews", "Watch"]
