"""Recorded steps train what ordinary ones train."""

from __future__ import annotations

import pytest
import torch

from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.methods import EWC, TEM, Finetune
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.nn import GCN, PDGNN
from evergraph.streams import GraphStream
from evergraph.training import Trainer


def stream() -> GraphStream:
    return GraphStream(load("synthetic", nodes=400, classes=4, features=16))


def learner_of(
    kind: type[BackboneLearner], backbone: object, device: str = "cpu"
) -> BackboneLearner:
    trainer = Trainer(epochs=8, batch_size=50, device=device, schedule="cosine")
    return kind(backbone=backbone, trainer=trainer, generator=seeded(0, "test"))  # type: ignore[arg-type]


def test_only_the_plain_loss_on_embeddings_can_be_recorded() -> None:
    task = stream().open(0)
    for kind, backbone, recorded in (
        (TEM, PDGNN(), True),
        (Finetune, PDGNN(), True),
        (EWC, PDGNN(), False),  # its loss has another term
        (Finetune, GCN(), False),
    ):
        learner = learner_of(kind, backbone)
        assert learner.draws_from is None  # nothing to train on yet
        learner.begin_task(task)
        assert (learner.draws_from is not None) == recorded, (kind, backbone)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_steps_give_what_ordinary_ones_give(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> dict[str, torch.Tensor]:
        learner = learner_of(TEM, PDGNN(dropout=0.5), "cuda")
        for task in stream():
            learner.fit_task(task)
        return learner.state()

    recorded = trained()
    again = trained()
    monkeypatch.setattr(BackboneLearner, "draws_from", None)
    ordinary = trained()
    for name, value in recorded.items():
        # cuBLAS promises no bits where several streams are at work (another process is enough).
        torch.testing.assert_close(value.double(), again[name].double(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(value.double(), ordinary[name].double(), rtol=1e-3, atol=1e-4)
