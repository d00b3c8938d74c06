"""The continual-learning methods."""

from evergraph.methods.adr import ADR
from evergraph.methods.analytic import Analytic
from evergraph.methods.auto import Auto
from evergraph.methods.base import BackboneLearner, load_learner, methods
from evergraph.methods.bounds import Finetune, Joint
from evergraph.methods.consolidation import EWC, MAS, TWP, LwF
from evergraph.methods.hpn import HPN
from evergraph.methods.replay import AGEM, ERGNN, GEM, SEM, SSM, FullSubgraph
from evergraph.methods.slda import OCGL, SLDA
from evergraph.methods.tem import FGN, TEM
from evergraph.methods.tpp import TAAM, TPP, TAAMPerTestSet, TPPPerTestSet

__all__ = [
    "ADR",
    "AGEM",
    "ERGNN",
    "EWC",
    "FGN",
    "GEM",
    "HPN",
    "MAS",
    "OCGL",
    "SEM",
    "SLDA",
    "SSM",
    "TAAM",
    "TEM",
    "TPP",
    "TWP",
    "Analytic",
    "Auto",
    "BackboneLearner",
    "Finetune",
    "FullSubgraph",
    "Joint",
    "LwF",
    "TAAMPerTestSet",
    "TPPPerTestSet",
    "load_learner",
    "methods",
]
