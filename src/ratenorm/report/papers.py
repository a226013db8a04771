"""The papers behind the methods: the keys records use, and the full reference a report prints."""

from __future__ import annotations

PAPERS: dict[str, str] = {
    "bu2022": (
        "T. Bu, J. Ding, Z. Yu, T. Huang. Optimized Potential Initialization for Low-latency Spiking Neural "
        "Networks. AAAI 2022. (start potential θ/2)"
    ),
    "bu2022qcfs": (
        "T. Bu, W. Fang, J. Ding, P. Dai, Z. Yu, T. Huang. Optimal ANN-SNN Conversion for High-accuracy and "
        "Ultra-low-latency Spiking Neural Networks. ICLR 2022. (quantised clip-floor-shift activation)"
    ),
    "cao2015": (
        "Y. Cao, Y. Chen, D. Khosla. Spiking Deep Convolutional Neural Networks for Energy-Efficient Object "
        "Recognition. International Journal of Computer Vision 113, 2015."
    ),
    "diehl2015": (
        "P. U. Diehl, D. Neil, J. Binas, M. Cook, S.-C. Liu, M. Pfeiffer. Fast-Classifying, High-Accuracy "
        "Spiking Deep Networks Through Weight and Threshold Balancing. IJCNN 2015. "
        "(model- and data-based norm)"
    ),
    "ding2021": (
        "J. Ding, Z. Yu, Y. Tian, T. Huang. Optimal ANN-SNN Conversion for Fast and Accurate Inference in "
        "Deep Spiking Neural Networks. IJCAI 2021. (Rate Norm Layer, Rate Inference Loss)"
    ),
    "han2020": (
        "B. Han, G. Srinivasan, K. Roy. RMP-SNN: Residual Membrane Potential Neuron for Enabling Deeper "
        "High-Accuracy and Low-Latency Spiking Neural Network. CVPR 2020."
    ),
    "horowitz2014": (
        "M. Horowitz. Computing's Energy Problem (and What We Can Do About It). ISSCC 2014. "
        "(energy of operations at 45 nm)"
    ),
    "kim2020": (
        "S. Kim, S. Park, B. Na, S. Yoon. Spiking-YOLO: Spiking Neural Network for Energy-Efficient Object "
        "Detection. AAAI 2020. (channel-wise norm)"
    ),
    "li2021": (
        "Y. Li, S. Deng, X. Dong, R. Gong, S. Gu. A Free Lunch From ANN: Towards Efficient, Accurate Spiking "
        "Neural Networks Calibration. ICML 2021. (light calibration)"
    ),
    "rueckauer2017": (
        "B. Rueckauer, I.-A. Lungu, Y. Hu, M. Pfeiffer, S.-C. Liu. Conversion of Continuous-Valued Deep "
        "Networks to Efficient Event-Driven Networks for Image Classification. Frontiers in Neuroscience 11, "
        "2017. (robust norm by percentile, soft reset)"
    ),
    "sengupta2019": (
        "A. Sengupta, Y. Ye, R. Wang, C. Liu, K. Roy. Going Deeper in Spiking Neural Networks: VGG and "
        "Residual Architectures. Frontiers in Neuroscience 13, 2019. (SpikeNorm)"
    ),
    "bu2025": (
        "T. Bu, M. Li, Z. Yu. Inference-Scale Complexity in ANN-SNN Conversion for High-Performance and Low-Power "
        "Applications. CVPR 2025. (local threshold balancing, late read-out)"
    ),
    "rathi2020": (
        "N. Rathi, G. Srinivasan, P. Panda, K. Roy. Enabling Deep Spiking Neural Networks with Hybrid Conversion and "
        "Spike Timing Dependent Backpropagation. ICLR 2020. (training through time from converted weights)"
    ),
    "wu2024": (
        "X. Wu, Y. Zhao, Y. Song, Y. Jiang, Y. Bai, X. Li, Y. Zhou, X. Yang, Q. Hao. FTBC: Forward Temporal Bias "
        "Correction for Optimizing ANN-SNN Conversion. ECCV 2024. (a bias for each step and channel)"
    ),
}


def reference(key: str) -> str:
    """The full reference of a key; an unknown key is shown as it stands, never hidden."""
    return PAPERS.get(key, f"{key} (no reference is stored for this key)")
