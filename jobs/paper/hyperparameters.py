"""Names of data sets and classifiers, and the hyper-parameters of the paper's appendix.

Apart from classifiers.py so that a page can be written without loading scikit-learn.
"""

# The paper's five, and two that nobody tuned on, made from what scikit-learn ships.
PAPER = {
    "adult": "Adult",
    "breast_cancer": "Breast Cancer",
    "covertype": "Covertype",
    "bank": "Bank",
    "spambase": "Spambase",
}
UNTOUCHED = {"wdbc": "Breast Cancer Diagnostic", "wine": "Wine"}
DATASETS = PAPER | UNTOUCHED
MODELS = {
    "lr": "logistic regression",
    "dt": "decision tree",
    "rf": "random forest",
    "lsvc": "linear SVC",
    "xgb": "XGBoost",
}
# The paper's appendix on tabular classifiers; what it leaves out has the library's default.
SETTINGS = {
    "adult": {
        "lr": {"C": 10},
        "dt": {"max_depth": 10, "min_samples_split": 5},
        "rf": {"max_depth": 15, "min_samples_split": 10, "n_estimators": 50},
        "lsvc": {"C": 1},
        "xgb": {"min_child_weight": 0.5, "max_depth": 3, "gamma": 0.2},
    },
    "breast_cancer": {
        "lr": {"C": 0.1},
        "dt": {"max_depth": 3, "min_samples_split": 4},
        "rf": {"max_depth": 4, "min_samples_split": 4, "n_estimators": 50},
        "lsvc": {"C": 0.01},
        "xgb": {"min_child_weight": 0.1, "max_depth": 3, "gamma": 0},
    },
    "covertype": {
        "lr": {"C": 100},
        "dt": {"max_depth": 25, "min_samples_split": 3},
        "rf": {"max_depth": 25, "n_estimators": 50},
        "lsvc": {"C": 10},
        "xgb": {"min_child_weight": 0.1, "max_depth": 20, "gamma": 0},
    },
    "bank": {
        "lr": {"C": 10},
        "dt": {"max_depth": 25},
        "rf": {"max_depth": 25, "min_samples_split": 3, "n_estimators": 50},
        "lsvc": {"C": 100},
        "xgb": {"min_child_weight": 5.0, "max_depth": 4, "gamma": 0.01},
    },
    "spambase": {
        "lr": {"C": 0.1},
        "dt": {"max_depth": 10, "min_samples_split": 3},
        "rf": {"max_depth": 20, "min_samples_split": 4, "n_estimators": 50},
        "lsvc": {"C": 0.01},
        "xgb": {"min_child_weight": 1.0, "max_depth": 20, "gamma": 0.1},
    },
} | {name: {model: {} for model in MODELS} for name in UNTOUCHED}
# Sets with rare classes, for which the paper weighs rows inversely to the frequency of their class.
BALANCED = {"bank", "covertype"}
