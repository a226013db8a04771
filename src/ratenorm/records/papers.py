"""The papers after which methods are named: the keys that records use, full references, and BibTeX."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """One paper. `authors` are written as "I. Last"; `about` says what of it is used here."""

    authors: str
    title: str
    venue: str
    year: int
    about: str = ""
    journal: bool = False

    def __str__(self) -> str:
        """As a reader sees it."""
        about = f" ({self.about})" if self.about else ""
        return f"{self.authors.removesuffix('.')}. {self.title}. {self.venue} {self.year}.{about}"

    def bibtex(self, key: str) -> str:
        """As LaTeX takes it."""
        names = " and ".join(_last_first(one) for one in self.authors.removesuffix(" et al.").split(", "))
        names += " and others" if self.authors.endswith(" et al.") else ""
        kind, place = ("article", "journal") if self.journal else ("inproceedings", "booktitle")
        venue = self.venue.rstrip(",")
        fields = {"author": names, "title": f"{{{self.title}}}", place: venue, "year": str(self.year)}
        if self.about:
            fields["note"] = f"Used here: {_latex(self.about)}"
        lines = ",\n".join(f"  {name:<9} = {{{value}}}" for name, value in fields.items())
        return f"@{kind}{{{key},\n{lines}\n}}"


def _last_first(name: str) -> str:
    """ "P. U. Diehl" as "Diehl, P. U."."""
    initials, _, last = name.rpartition(". ")
    return f"{last}, {initials}."


_GREEK = {"θ": r"$\theta$", "λ": r"$\lambda$", "Ω": r"$\Omega$"}


def _latex(text: str) -> str:
    return "".join(_GREEK.get(letter, letter) for letter in text)


PAPERS: dict[str, Paper] = {
    "bu2022": Paper(
        "T. Bu, J. Ding, Z. Yu, T. Huang",
        "Optimized Potential Initialization for Low-latency Spiking Neural Networks",
        "AAAI",
        2022,
        "start potential θ/2",
    ),
    "bu2022qcfs": Paper(
        "T. Bu, W. Fang, J. Ding, P. Dai, Z. Yu, T. Huang",
        "Optimal ANN-SNN Conversion for High-accuracy and Ultra-low-latency Spiking Neural Networks",
        "ICLR",
        2022,
        "quantised clip-floor-shift activation",
    ),
    "bu2025": Paper(
        "T. Bu, M. Li, Z. Yu",
        "Inference-Scale Complexity in ANN-SNN Conversion for High-Performance and Low-Power Applications",
        "CVPR",
        2025,
        "local threshold balancing, late read-out",
    ),
    "cao2015": Paper(
        "Y. Cao, Y. Chen, D. Khosla",
        "Spiking Deep Convolutional Neural Networks for Energy-Efficient Object Recognition",
        "International Journal of Computer Vision 113,",
        2015,
        journal=True,
    ),
    "diehl2015": Paper(
        "P. U. Diehl, D. Neil, J. Binas, M. Cook, S.-C. Liu, M. Pfeiffer",
        "Fast-Classifying, High-Accuracy Spiking Deep Networks Through Weight and Threshold Balancing",
        "IJCNN",
        2015,
        "model- and data-based norm",
    ),
    "ding2021": Paper(
        "J. Ding, Z. Yu, Y. Tian, T. Huang",
        "Optimal ANN-SNN Conversion for Fast and Accurate Inference in Deep Spiking Neural Networks",
        "IJCAI",
        2021,
        "Rate Norm Layer, Rate Inference Loss",
    ),
    "han2020": Paper(
        "B. Han, G. Srinivasan, K. Roy",
        "RMP-SNN: Residual Membrane Potential Neuron for Enabling Deeper High-Accuracy and Low-Latency Spiking Neural "
        "Network",
        "CVPR",
        2020,
    ),
    "horowitz2014": Paper(
        "M. Horowitz",
        "Computing's Energy Problem (and What We Can Do About It)",
        "ISSCC",
        2014,
        "energy of operations at 45 nm",
    ),
    "kim2020": Paper(
        "S. Kim, S. Park, B. Na, S. Yoon",
        "Spiking-YOLO: Spiking Neural Network for Energy-Efficient Object Detection",
        "AAAI",
        2020,
        "channel-wise norm",
    ),
    "li2021": Paper(
        "Y. Li, S. Deng, X. Dong, R. Gong, S. Gu",
        "A Free Lunch From ANN: Towards Efficient, Accurate Spiking Neural Networks Calibration",
        "ICML",
        2021,
        "light calibration",
    ),
    "rathi2020": Paper(
        "N. Rathi, G. Srinivasan, P. Panda, K. Roy",
        "Enabling Deep Spiking Neural Networks with Hybrid Conversion and Spike Timing Dependent Backpropagation",
        "ICLR",
        2020,
        "training through time from converted weights",
    ),
    "rueckauer2017": Paper(
        "B. Rueckauer, I.-A. Lungu, Y. Hu, M. Pfeiffer, S.-C. Liu",
        "Conversion of Continuous-Valued Deep Networks to Efficient Event-Driven Networks for Image Classification",
        "Frontiers in Neuroscience 11,",
        2017,
        "robust norm by percentile, soft reset",
        journal=True,
    ),
    "sengupta2019": Paper(
        "A. Sengupta, Y. Ye, R. Wang, C. Liu, K. Roy",
        "Going Deeper in Spiking Neural Networks: VGG and Residual Architectures",
        "Frontiers in Neuroscience 13,",
        2019,
        "SpikeNorm",
        journal=True,
    ),
    "wu2024": Paper(
        "X. Wu, Y. Zhao, Y. Song, Y. Jiang, Y. Bai, X. Li, Y. Zhou, X. Yang, Q. Hao",
        "FTBC: Forward Temporal Bias Correction for Optimizing ANN-SNN Conversion",
        "ECCV",
        2024,
        "a bias for each step and channel",
    ),
    "yik2025": Paper(
        "J. Yik et al.",
        "The neurobench framework for benchmarking neuromorphic computing algorithms and systems",
        "Nature Communications 16,",
        2025,
        "the definitions of its metrics",
        journal=True,
    ),
}


def reference(key: str) -> str:
    """The full reference of a key; an unknown key is shown as it stands, never hidden."""
    return str(PAPERS.get(key, f"{key} (no reference is stored for this key)"))


def bibtex(keys: Iterable[str]) -> str:
    """BibTeX of the papers, each once, in the order given; an unknown key becomes a comment, never hidden."""
    unique = dict.fromkeys(keys)
    return "\n\n".join(
        PAPERS[key].bibtex(key) if key in PAPERS else f"% {key}: no reference is stored for this key" for key in unique
    )
