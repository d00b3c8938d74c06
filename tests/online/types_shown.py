"""Types that mypy shows for the classifier; ``test_types_shown`` has them checked."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import assert_type

from evergraph import ContinualNodeClassifier

model = ContinualNodeClassifier()
assert_type(model.fit(np.eye(2), [0, 1]), ContinualNodeClassifier)
assert_type(model.predict([0, 1]), NDArray[Any])
assert_type(model.predict(np.eye(2)), NDArray[Any])
assert_type(model.predict(torch.arange(2)), torch.Tensor | NDArray[Any])
assert_type(model.predict_proba([0]), NDArray[Any])
assert_type(model.predict_proba(torch.arange(2)), torch.Tensor)
assert_type(model.embed([0]), NDArray[Any])
assert_type(model.score([0], [0]), float)
assert_type(ContinualNodeClassifier.load("people"), ContinualNodeClassifier)
