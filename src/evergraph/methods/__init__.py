"""The continual-learning methods."""

from evergraph.methods.a_gem import AGEM
from evergraph.methods.adr import ADR
from evergraph.methods.analytic import Analytic
from evergraph.methods.auto import Auto
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods
from evergraph.methods.er_gnn import ERGNN
from evergraph.methods.ewc import EWC
from evergraph.methods.fgn import FGN
from evergraph.methods.finetune import Finetune
from evergraph.methods.full_subgraph import FullSubgraph
from evergraph.methods.gem import GEM
from evergraph.methods.hpn import HPN
from evergraph.methods.joint import Joint
from evergraph.methods.loading import load_learner
from evergraph.methods.lwf import LwF
from evergraph.methods.mas import MAS
from evergraph.methods.ocgl import OCGL
from evergraph.methods.sem import SEM
from evergraph.methods.slda import SLDA
from evergraph.methods.ssm import SSM
from evergraph.methods.taam import TAAM, TAAMPerTestSet
from evergraph.methods.tem import TEM
from evergraph.methods.tpp import TPP, TPPPerTestSet
from evergraph.methods.twp import TWP

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
