"""Makes small real models for the tests, and what they should answer.

    make_models.py FOLDER [NAME]

Writes `frame.parquet`, a seeded table with text, whole-number, real and boolean columns, and for
each model NAME.onnx and NAME.parquet: the label as text and a column `p0`, `p1`, … per class, or
`value`, in the frame's row order, as the training library itself predicts them.

NAME is `large` for the model and table of measurements, `native` for models that only our own scorer is tried
on, `paper` for models of the data sets in OVERTURN_DATA; all small models without a name.
"""

import base64
import os
import pathlib
import sys
import warnings
import zlib

import lightgbm
import numpy
import onnx
import pandas
import xgboost
from onnx import TensorProto, helper
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from skl2onnx.common import _container as container
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

warnings.filterwarnings("ignore")

ROWS = 600
NUMBERS = ["age", "tenure", "income", "rate"]
TEXTS = ["job", "region"]
JOBS = ["clerk", "farmer", "nurse", "pilot"]
REGIONS = ["north", "south", "west"]


def make_frame():
    random = numpy.random.default_rng(7)
    frame = pandas.DataFrame(
        {
            "age": random.integers(18, 90, ROWS),
            "job": random.choice(JOBS, ROWS),
            "tenure": random.integers(0, 40, ROWS).astype(numpy.int32),
            "income": random.normal(40_000, 9_000, ROWS).round(2),
            "region": random.choice(REGIONS, ROWS),
            "rate": random.normal(size=ROWS).astype(numpy.float32),
            "member": random.random(ROWS) < 0.5,
        }
    )
    worth = (
        (frame.age - 50) / 20
        + (frame.income - 40_000) / 9_000
        + frame.rate
        + (frame.job == "pilot") * 1.5
        - (frame.region == "west")
        + frame.member * 0.5
    )
    return frame, worth.to_numpy()


FRAME, WORTH = make_frame()
BINARY = (WORTH > 0.5).astype(numpy.int64)
GRADE = numpy.digitize(WORTH, [-1, 1])
WORD = numpy.array(["low", "middle", "top"])[GRADE]
# Rows of a data set that models of it are trained on, at most.
PAPER_ROWS = 40_000
MATRIX = FRAME[NUMBERS].to_numpy().astype(numpy.float32)
FOLDER = pathlib.Path(sys.argv[1])


def save(name, model, expected):
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    pandas.DataFrame(expected).to_parquet(FOLDER / f"{name}.parquet")


def classes(model, inputs):
    expected = {"label": [str(label) for label in model.predict(inputs)]}
    if hasattr(model, "predict_proba"):
        chances = model.predict_proba(inputs)
        expected |= {f"p{k}": chances[:, k].astype(float) for k in range(chances.shape[1])}
    return expected


def classifier(name, model, target, inputs=MATRIX, **options):
    model.fit(inputs, target)
    exported = to_onnx(model, inputs[:1], options={id(model): options} if options else None)
    save(name, exported, classes(model, inputs))


def regressor(name, model):
    model.fit(MATRIX, WORTH)
    value = model.predict(MATRIX).reshape(-1).astype(float)
    save(name, to_onnx(model, MATRIX[:1]), {"value": value})


def matrix_classifiers():
    plain = {"zipmap": False}
    classifier("logistic", LogisticRegression(), WORD, **plain)
    classifier("logistic_zipmap", LogisticRegression(), WORD)
    classifier("tree", DecisionTreeClassifier(max_depth=5, random_state=1), BINARY, **plain)
    classifier("tree_zipmap", DecisionTreeClassifier(max_depth=5, random_state=1), BINARY)
    forest = RandomForestClassifier(12, max_depth=6, random_state=1)
    classifier("forest", forest, WORD, **plain)
    classifier("margin", LinearSVC(), BINARY)
    classifier("margins", LinearSVC(), WORD)
    classifier("bayes", GaussianNB(), BINARY, **plain)
    classifier("network", MLPClassifier((6,), max_iter=30, random_state=1), WORD, **plain)
    classifier("rest", OneVsRestClassifier(LogisticRegression()), GRADE, **plain)


def pipeline(name, **options):
    """A pipeline that takes one input per column, in the column's own type.

    But for `income`, which it takes as float: exported pipelines do not mix float and double.
    """
    columns = FRAME[["age", "job", "tenure", "income", "region", "rate"]]
    columns = columns.astype({"income": numpy.float32})
    prepare = ColumnTransformer(
        [
            ("texts", OneHotEncoder(handle_unknown="ignore"), TEXTS),
            # Scaled numbers would differ from the library's in the last bit, enough to cross a threshold.
            ("numbers", "passthrough", NUMBERS),
        ]
    )
    forest = RandomForestClassifier(12, max_depth=6, random_state=1)
    model = Pipeline([("prepare", prepare), ("forest", forest)]).fit(columns, BINARY)
    exported = to_onnx(model, columns[:1], options={id(forest): options} if options else None)
    save(name, exported, classes(model, columns))


def encoded():
    """Models on the codes, and on the standardised and one-hot form, of all but `member`."""
    codes = FRAME[["age", "job", "tenure", "income", "region", "rate"]].copy()
    codes["job"] = codes["job"].map(JOBS.index)
    codes["region"] = codes["region"].map(REGIONS.index)
    forest = RandomForestClassifier(12, max_depth=6, random_state=1)
    classifier("codes", forest, BINARY, codes.to_numpy().astype(numpy.float32), zipmap=False)

    statistics = {"age": (50, 20), "tenure": (20, 10), "income": (4e4, 9e3), "rate": (0, 1)}
    numbers = [(FRAME[name].astype(float) - mean) / std for name, (mean, std) in statistics.items()]
    hot = [FRAME.job == value for value in JOBS] + [FRAME.region == value for value in REGIONS]
    matrix = numpy.stack([*numbers, *hot], axis=1).astype(float)
    model = LogisticRegression()
    classifier("standardised", model, WORD, matrix.astype(numpy.float32), zipmap=False)
    classifier("standardised_double", LogisticRegression(), WORD, matrix, zipmap=False)


def boosted():
    """XGBoost, with gaps in `income`, which come out of the table as nulls."""
    matrix = MATRIX.copy()
    matrix[::7, NUMBERS.index("income")] = numpy.nan
    kind = [("X", FloatTensorType([None, matrix.shape[1]]))]
    for name, target in [("boosted", BINARY), ("boosted_grades", GRADE)]:
        model = xgboost.XGBClassifier(n_estimators=12, max_depth=4).fit(matrix, target)
        save(name, convert_xgboost(model, initial_types=kind), classes(model, matrix))
    model = xgboost.XGBRegressor(n_estimators=12, max_depth=4).fit(matrix, WORTH)
    value = model.predict(matrix).astype(float)
    save("boosted_worth", convert_xgboost(model, initial_types=kind), {"value": value})


def handmade():
    """Models that no library writes for us: one input of each type, and outputs in odd forms."""
    declared = {
        "float": (TensorProto.FLOAT, [None, 1]),
        "double": (TensorProto.DOUBLE, [None]),
        "int64": (TensorProto.INT64, [None, 1]),
        "int32": (TensorProto.INT32, [None]),
        "bool": (TensorProto.BOOL, [None, 1]),
        "string": (TensorProto.STRING, [None]),
    }
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in declared.items()]
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["string"],
            ["word"],
            domain="ai.onnx.ml",
            keys_strings=["7", "true", "none", ""],
            values_floats=[700.0, 1000.0, 5000.0, 9000.0],
            default_float=-1e6,
        )
    ]
    column = helper.make_tensor("column", TensorProto.INT64, [2], [-1, 1])
    for name in declared:
        source = "word" if name == "string" else name
        nodes += [
            helper.make_node("Cast", [source], [f"{name}_real"], to=TensorProto.DOUBLE),
            helper.make_node("Reshape", [f"{name}_real", "column"], [f"{name}_column"]),
        ]
    nodes.append(helper.make_node("Sum", [f"{name}_column" for name in declared], ["total"]))
    output = helper.make_tensor_value_info("total", TensorProto.DOUBLE, [None, 1])
    graph = helper.make_graph(nodes, "typed", inputs, [output], [column])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    typed = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(typed)
    (FOLDER / "typed.onnx").write_bytes(typed.SerializeToString())

    # Scores without a label.
    model = onnx.load(FOLDER / "network.onnx")
    del model.graph.output[0]
    (FOLDER / "scores_only.onnx").write_bytes(model.SerializeToString())
    # A single probability without a label, and what looks like one.
    matrix = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 1])
    chance = helper.make_tensor_value_info("chance", TensorProto.FLOAT, [None, 1])
    for name, operator in [("chance", "Sigmoid"), ("no_chance", "Exp")]:
        node = helper.make_node(operator, ["X"], ["chance"])
        graph = helper.make_graph([node], name, [matrix], [chance])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    # From the future, and cut short.
    model = onnx.load(FOLDER / "tree.onnx")
    for opset in model.opset_import:
        opset.version = 999
    (FOLDER / "too_new.onnx").write_bytes(model.SerializeToString())
    whole = (FOLDER / "tree.onnx").read_bytes()
    (FOLDER / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    # For one row at a time.
    model = onnx.load(FOLDER / "tree.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    (FOLDER / "one_row.onnx").write_bytes(model.SerializeToString())


def large():
    """For measuring: fifty trees on eight numbers and six texts, a hundred thousand rows."""
    random = numpy.random.default_rng(7)
    rows = 100_000
    numbers = {f"n{i}": random.normal(size=rows) for i in range(8)}
    texts = {
        f"t{i}": random.choice([f"value {i} {k}" for k in range(4 + 3 * i)], rows) for i in range(6)
    }
    frame = pandas.DataFrame({**numbers, **texts})
    frame.to_parquet(FOLDER / "large_frame.parquet")
    frame = frame.astype({name: numpy.float32 for name in numbers})
    target = (frame.n0 + frame.n1 * frame.n2 + (frame.t0 == "value 0 1") > 0.2).astype(int)
    prepare = ColumnTransformer(
        [("n", "passthrough", list(numbers)), ("t", OneHotEncoder(), list(texts))]
    )
    forest = RandomForestClassifier(50, max_depth=12, random_state=1, n_jobs=2)
    model = Pipeline([("prepare", prepare), ("forest", forest)])
    model.fit(frame[:20_000], target[:20_000])
    exported = to_onnx(model, frame[:1], options={id(forest): {"zipmap": False}})
    save("large", exported, classes(model, frame[:1000]))


# What CatBoost 1.2.10 exports of three trees of depth two on MATRIX: the library itself is 100 MB with what it
# needs, more than all other packages together.
CATBOOST = {
    "n_catboost": (
        "c-p;G&2JM&6!+SRv!39Pt`LW!iX{>pEaCVg{#vmc#}+j~AxK~@T-@2+S$oKSSUY1w3g@a+;($c&kt!h$Rn=P$mFznQE=U}>@lSw2"
        "LSkk%4o>Q%>ZN}2PxE%(@3-&0eR^_2k(-b<f`HI(-^N>*s@Qh|4XEtb3_K50O*QkTU4Uh~QYqwXs9Jz|XgL<L9m_JSsO*%jJVLqZ"
        "njkeo=vzHarLap@hxu$Fo6m`hjREZip{Bx}UKsR)p?YO<s_#PIMh`Ai1ih>kc!r3-J@7mj?rQ2JKQ%-yf&{6NXjZjEew`j9J<X}2"
        "T&`F(^R-f`WEab@X2ObD&70*)F;^(9nZ;6}R?gW%x{K*$GW4fP-GWTN*@J!;+3GDc)YMv`R?JmP0NkWK6i$UU2H3S#lO=Y?-|>U{"
        "zB(W%6j$w_uaeMGZOrOiWv5jOQj_Nnw8x9!c?!r5f^-lfqRhL{M6ROr!@z_lb}`-UP~?*!Tshkg5xVLV<e4sNx{wg;U=(J~0mb5;"
        "V3H2@X?cy*V|8gyTF86{mip{P9m@JooFMd8<gJ^n&D-tG=AM+u7$7CM9c&BAfBAFy21rMIKd=$kNHCjYHqR`{>|gvt8kE%+<#E`g"
        "BNjhwT;msMB61($ZjTcEhff#RIgIsKtZr}^>91;CgTqMge>^+pu&#HXTo5qUe?Rk+!C|C7tNdng80jB>eJ#MylaJpD80qge69NqV"
        "^M{2I2Sa~!4~#ji?@7tb22glANXLOLL6go%tn&G(nvV5&J?mh3Um_ZesI}8gNr>WSdR$-|oR0)N%;v=Jc81U$AU+1x4)62;{iDst"
        "8rS<<0*m{C9IvMuw>Gw$*E+5CF~_;Bs~g|X!2g}NC&`&BARQ$?`4}-VMhP*9$&)-@`vH6QfSxd%oLvXsOxS~iVTd#J<blEo9#{Ag"
        "oQf30HzfM|Coe{9pf5Eh5Q`m!KYxBW*8kdCZbdLF<mH>EhW^LGg;oSJLf9;80OD-m`wz073)*1DT2j(qpJ7B+l6P_c2JD}>m8Mmd"
        "^kk9WU^TjT&rL1E(;zKNN(v+tX&c1lIr9wI-;awRB`+xR;>J7=4(FgOt(*cNBeRG(Mw9McoSFC$^>||mOy#v4{{kgT)r9"
    ),
    "n_catboost_grades": (
        "c-p;HU5Fc16z(Lu+2m%kb_c1TE*%4XNo_WhY_iF?cbXr!E491DcHP!R2zO@gB-fpvICqkE^+jK_eG@5G6l9+STj+zJAe$X1MG<`!"
        "{CSW<3;w(bMGy))KRY$6Nks(bz~P>`=X~?sbH3cfqino^?7C@E`{C~*OT^}gp_&5V+^1pcI<W;#;w2@IO3M6vp0D6?9`Q(4Wvr;O"
        "ER}IdEy+B_x$>M}RJV{Jw*}5dEjrudv-vEa^EYZ;yKPzmhc?=l*)e<ELb$4KB16IFkJuRLS=rP@KmT-B*O9d;a3Md=!Wu>ta{*|U"
        "lYM^8Hll4oE#q9SP?q>gu~<|JB~+2nyj13;(tIJ8FV0DYV!l$!DL!<I*hgs37&z()<l;Bl$Y^1OJB51!SIJijxpEPJlXe?h1F7{c"
        "(G*T{i9Ks<80I;H>r!m_TdQV=qn6Am#69P%yPB1eEqUC5@Wv##3P4=N$nIL0vf~<(u*R|-%ao8rG-7WyZER4}N*`FYFkUn$)+G%$"
        "G(;&;3AQpbfR(+-ucS?4*rhpI-B)F*ku7E-^C+0=xSwj;?gXf6T6%io^vPqZ%eAvxOf<6w5`J-$D7!WP-FshM2dMzpFcs`!M|~Uf"
        "ZQQq*Z~yZB9&FofNWgozF(WK8+&t{hm=OFNCatzjAwPLTgjcUz*@3U2w;lL7UUcB0{xhPt>cf|l#~t|X%(@7FdGnP%B;+RtUU+@N"
        "ftTMpa1>s+EsOBej~5`Exp>imzoM!GQ`dMAUJ^GJ;6C>maLKi82i~nIJMii6zZT((U%o5CvxlGW!-syp<iNwfUEhJPPX7+!bLdVV"
        "p7|!}z&nX)5x!G+e;Yn_>mvtNc0PFmK7RK@af^v%YJl}xPn#;zC=RE<xIG;o=+DT=>%~#9e-|Q9rw0(()8Jr8VH6pRJb)E&FaXer"
        "D^{b`>>;g-JtfK;-t@Y7<mmop9^N(slDmMOKc1+cs;xAhYA&sgSdN`otQ{NT|M$WzCZ1UUsepVqjNm5|^#vZgU*w(rUiEO%-$&qH"
        "brnp9)!lnyh`8vnf$5EmJcO6PWPsq$kU}w<Tyk}5)I+yN%f5T^#}8Z?-~7S}+_03dE~l5^dxamIzzs=pwJZQcvZi62&*~aj14Hgc"
        "HudK_f@wOoPCCn|^AA_!ATFB<|4)|PQ)=sv4BW{NfK;4e6ClbmD<BddlO6=S*K`sj;uGw+zat$4ds(nk=}7=GaW`YkEn{9dG?e;Z"
        "(4+M!Fu-en<PYAo`q="
    ),
    "n_catboost_worth": (
        "c-p;GJ#W)M7>@H%oC_@>v=X!fRtG>q&1dsv^~jgnAXHMRl!Yan?Mq@cwj<v;ZIL=L@dFq^8CV#Y7>WdHCni={5Ca23;twE3{1F$Y"
        "B#h*w*Z1b0_tEp-`{>v}jIASD(=<XCKl>Xp<z%(3@qjabbxl!Z%5y?mkTNJQ6$+Vj2^TXcjl{NyrM4&vMVxQv#WcpL;;LO#(~&B6"
        "d5)qENe<G9Od_4K52^<3YC6xM-L9_nwE?&0?kWdJmGJ%w#YjnrnsUp=-!l{i=?6UL>f?0W!-!zcAx&_it*_NZq|3L9IF-s4g>)&G"
        "%SqWhDha3{6w^Y!kWFQBt3o!HDdkg=P2G{{3K^)LRyUE!U+*HdgC%Yo4|uMWDP>c|8~|Iii**mQX2?B>6HH<E)m>HFQ#pfR-9FmU"
        "`W(?kPLj<&ljbfdA}Uzg0sn&q&so5>F`|Z!Ni5RWu_TLB)>N{*u%lzVt`e*WJ-m%OCV*&q{0f-so5d|^-YIEoy0RQ>ZZ+43OduWw"
        "VYNk(-ocbyW`>MEejNZOZ^;s=_$IF*b1r@p%#DDmCSeO4s01sa%FNmCIGCCez0AyL`JH8fw@$%(SnhNwfj<xF3ET)jf$-_8_wV4x"
        "uZLxLDU>*YFEa-a4!`G*;g@HnGW>Qle*%*qe(|usA+5m|=tg<S%)}Q!L@+1b8lawm2@JoUxBsq!m?fRG+Nejc+XZ9l4teBF%`B;9"
        "5FJrC197fl{I;yV+<m~CSp-dR)ge%1LS(h$XtYKp?h^B3;Au0MJe9W$h>QrWcqd%jt~TqpTaBG5+u-JUbz?&O?}bB#jjw@ON4z@>"
        "pY06SQ2)rR-cPH~dTiWjV}ASNx(c}HRvV{g@SE&2o=Hy4EQUwmyu&c^*_-X9GW7Yb)!g9o{T&|H;L&EZ;e<($hy72-P!LiLCrp5t"
        "UgiOk6Pl{-CzM`n)_v;knreCvmORhJ1u)Apu`me4m?rSEL17ViUyxV?gw6AieO{Xb9@eP;Hwu7-Cj"
    ),
}


def plain_numbers(make_node):
    """skl2onnx hands numpy's whole numbers and flags on, which newer releases of onnx refuse."""

    def whole(value):
        if isinstance(value, (list, tuple)):
            return [whole(one) for one in value]
        if isinstance(value, (numpy.generic, numpy.ndarray)):
            return whole(value.tolist())
        return int(value) if isinstance(value, bool) else value

    def made(*names, **attributes):
        return make_node(*names, **{name: whole(value) for name, value in attributes.items()})

    return made


def native():
    """Models for the scorer of trees and linear models, which is held against ONNX Runtime: no expectations."""
    container.make_node = plain_numbers(container.make_node)
    gaps = MATRIX.copy()
    gaps[::7, NUMBERS.index("income")] = numpy.nan
    native_trees()
    native_boosted(gaps)
    native_pipelines()
    native_handmade()
    for name, text in CATBOOST.items():
        (FOLDER / f"{name}.onnx").write_bytes(zlib.decompress(base64.b85decode(text)))


def export(name, model, target, inputs=MATRIX):
    model.fit(inputs, target)
    options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
    exported = to_onnx(model, inputs[:1], options=options)
    (FOLDER / f"{name}.onnx").write_bytes(exported.SerializeToString())


def native_trees():
    sizes = {"max_depth": 6, "random_state": 1}
    few = {"n_estimators": 12, **sizes}
    export("n_forest", RandomForestClassifier(**few), WORD)
    export("n_forest_two", RandomForestClassifier(**few), BINARY)
    export("n_extra", ExtraTreesClassifier(**few), BINARY)
    export("n_tree", DecisionTreeClassifier(**sizes), WORD)
    export("n_gradient", GradientBoostingClassifier(n_estimators=12), BINARY)
    export("n_gradient_grades", GradientBoostingClassifier(n_estimators=12), WORD)
    export("n_histogram", HistGradientBoostingClassifier(max_iter=12), BINARY)
    export("n_histogram_grades", HistGradientBoostingClassifier(max_iter=12), GRADE)
    export("n_forest_worth", RandomForestRegressor(**few), WORTH)
    export("n_extra_worth", ExtraTreesRegressor(**few), WORTH)
    export("n_tree_worth", DecisionTreeRegressor(**sizes), WORTH)
    export("n_gradient_worth", GradientBoostingRegressor(n_estimators=12), WORTH)
    export("n_histogram_worth", HistGradientBoostingRegressor(max_iter=12), WORTH)
    doubles = FRAME[NUMBERS].to_numpy().astype(float)
    export("n_forest_double", RandomForestClassifier(**few), WORD, doubles)
    export("n_deep", RandomForestClassifier(6, random_state=1), WORD)
    export("n_logistic", LogisticRegression(), WORD)
    export("n_logistic_two", LogisticRegression(), BINARY)
    export("n_linear_worth", LinearRegression(), WORTH)


def native_boosted(gaps):
    kind = [("X", FloatTensorType([None, gaps.shape[1]]))]
    few = {"n_estimators": 12, "max_depth": 4}
    for name, target in [("n_xgboost", BINARY), ("n_xgboost_grades", GRADE)]:
        model = xgboost.XGBClassifier(**few).fit(gaps, target)
        exported = convert_xgboost(model, initial_types=kind)
        (FOLDER / f"{name}.onnx").write_bytes(exported.SerializeToString())
    exported = convert_xgboost(xgboost.XGBRegressor(**few).fit(gaps, WORTH), initial_types=kind)
    (FOLDER / "n_xgboost_worth.onnx").write_bytes(exported.SerializeToString())
    few["verbose"] = -1
    for name, target in [("n_lightgbm", BINARY), ("n_lightgbm_grades", GRADE)]:
        model = lightgbm.LGBMClassifier(**few).fit(gaps, target)
        exported = convert_lightgbm(model, initial_types=kind, zipmap=False)
        (FOLDER / f"{name}.onnx").write_bytes(exported.SerializeToString())
    exported = convert_lightgbm(lightgbm.LGBMRegressor(**few).fit(gaps, WORTH), initial_types=kind)
    (FOLDER / "n_lightgbm_worth.onnx").write_bytes(exported.SerializeToString())


def native_pipelines():
    columns = FRAME[["age", "job", "tenure", "income", "region", "rate"]]
    columns = columns.astype({"income": numpy.float32, "age": numpy.float32, "tenure": numpy.float32})
    few = {"n_estimators": 12, "max_depth": 5, "random_state": 1}
    impute = Pipeline([("impute", SimpleImputer()), ("scale", StandardScaler())])
    narrow = Pipeline([("impute", SimpleImputer(strategy="median")), ("scale", MinMaxScaler())])
    hot = OneHotEncoder(handle_unknown="ignore")
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    for name, numbers, texts, model in [
        ("n_hot", impute, hot, RandomForestClassifier(**few)),
        ("n_ordinal", narrow, ordinal, GradientBoostingClassifier(n_estimators=9)),
        ("n_robust", RobustScaler(), hot, ExtraTreesClassifier(**few)),
        ("n_normal", Pipeline([("i", SimpleImputer()), ("n", Normalizer())]), hot, RandomForestClassifier(**few)),
        ("n_hot_logistic", impute, hot, LogisticRegression()),
        ("n_strict", impute, OneHotEncoder(), RandomForestClassifier(**few)),
        ("n_bins", KBinsDiscretizer(4, encode="ordinal"), hot, RandomForestClassifier(**few)),
    ]:
        prepare = ColumnTransformer([("texts", texts, TEXTS), ("numbers", numbers, NUMBERS)])
        pipeline = Pipeline([("prepare", prepare), ("model", model)]).fit(columns, WORD)
        exported = to_onnx(pipeline, columns[:1], options={id(model): {"zipmap": False}})
        (FOLDER / f"{name}.onnx").write_bytes(exported.SerializeToString())


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def random_nodes(random, trees, modes, gaps):
    """The lists of trees of depth three, and the leaves as pairs of tree and node."""
    lists = {name: [] for name in ["treeids", "nodeids", "featureids", "modes", "values"]}
    lists |= {name: [] for name in ["truenodeids", "falsenodeids", "missing_value_tracks_true"]}
    leaves = []
    for tree in range(trees):
        for node in range(15):
            leaf = node >= 7
            feature = int(random.integers(0, len(NUMBERS)))
            lists["treeids"].append(tree)
            lists["nodeids"].append(node)
            lists["featureids"].append(0 if leaf else feature)
            lists["modes"].append("LEAF" if leaf else str(random.choice(modes)))
            lists["values"].append(0.0 if leaf else float(random.choice(MATRIX[:, feature])))
            lists["truenodeids"].append(0 if leaf else 2 * node + 1)
            lists["falsenodeids"].append(0 if leaf else 2 * node + 2)
            track = gaps and not leaf and random.random() < 0.5
            lists["missing_value_tracks_true"].append(int(track))
            if leaf:
                leaves.append((tree, node))
    return {f"nodes_{name}": values for name, values in lists.items()}, leaves


def handmade_trees(name, nodes, weights, **more):
    """A classifier where `more` names its labels, else a regressor; weights are tree, node, output, weight."""
    kind = "class" if "classlabels_int64s" in more else "target"
    trees, ids, outputs, numbers = zip(*weights)
    given = {"treeids": trees, "nodeids": ids, "ids": outputs, "weights": numbers}
    given = {f"{kind}_{key}": list(values) for key, values in given.items()}
    matrix = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, len(NUMBERS)])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, None])
    labels = helper.make_tensor_value_info("label", TensorProto.INT64, [None])
    operator = "TreeEnsembleClassifier" if kind == "class" else "TreeEnsembleRegressor"
    outputs = [labels, scores] if kind == "class" else [scores]
    names = [output.name for output in outputs]
    node = helper.make_node(operator, ["X"], names, domain="ai.onnx.ml", **nodes, **given, **more)
    save_handmade(name, [node], [matrix], outputs, 3)


def save_handmade(name, nodes, inputs, outputs, version, constants=()):
    graph = helper.make_graph(nodes, name, inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())


def native_handmade():
    random = numpy.random.default_rng(11)
    for mode in [*MODES, "mixed"]:
        for gaps in [False, True]:
            modes = MODES if mode == "mixed" else [mode]
            nodes, leaves = random_nodes(random, 9, modes, gaps)
            weights = [(*leaf, 0, float(random.normal())) for leaf in leaves]
            handmade_trees(f"h_mode_{mode}_{int(gaps)}", nodes, weights, n_targets=1)
    for aggregate in ["SUM", "AVERAGE", "MIN", "MAX"]:
        for transform in ["NONE", "PROBIT"]:
            nodes, leaves = random_nodes(random, 5, MODES[:4], True)
            weights = [(*leaf, 0, float(random.random() / 12)) for leaf in leaves]
            more = {"aggregate_function": aggregate, "post_transform": transform, "n_targets": 1}
            handmade_trees(f"h_{aggregate}_{transform}", nodes, weights, base_values=[0.4], **more)
    for transform in ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]:
        for case in ["one", "mixed", "both", "base", "bases", "three", "sparse"]:
            handmade_classifier(random, transform, case)
    for double in [False, True]:
        for aggregate, transform in [(1, 0), (0, 0), (2, 0), (3, 0), (1, 4)]:
            newer_trees(random, f"h_newer_{int(double)}_{aggregate}_{transform}", double, aggregate, transform)
    # An operator that nobody knows the effect of.
    matrix = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, len(NUMBERS)])
    value = helper.make_tensor_value_info("value", TensorProto.FLOAT, [None, 1])
    tree = onnx.load(FOLDER / "h_SUM_NONE.onnx").graph.node[0]
    tree.input[0] = "waves"
    sine = helper.make_node("Sin", ["X"], ["waves"])
    tree.output[0] = "value"
    save_handmade("h_unknown", [sine, tree], [matrix], [value], 3)


def handmade_classifier(random, transform, case):
    nodes, leaves = random_nodes(random, 6, MODES[:4], False)
    labels = [3, 5, 9] if case in ["three", "sparse"] else [0, 1]

    def weights(leaf):
        low = 0.0 if case == "one" else -0.1
        outputs = {"both": [0, 1], "three": [0, 1, 2], "sparse": [random.integers(0, 3)]}.get(case, [0])
        return [(*leaf, int(output), float(random.uniform(low, 0.15))) for output in outputs]

    base = {"base": [0.2], "bases": [0.1, 0.2], "three": [0.1, 0.2, 0.3]}.get(case)
    more = {"base_values": base} if base else {}
    given = [one for leaf in leaves for one in weights(leaf)]
    name = f"h_class_{transform}_{case}"
    handmade_trees(name, nodes, given, classlabels_int64s=labels, post_transform=transform, **more)


def newer_trees(random, name, double, aggregate, transform):
    """`TreeEnsemble` of ai.onnx.ml 5, with sets of members."""
    kind, dtype = (TensorProto.DOUBLE, float) if double else (TensorProto.FLOAT, numpy.float32)
    modes, splits, features, gaps, members = [], [], [], [], []
    ways = {key: [] for key in ["truenodeids", "trueleafs", "falsenodeids", "falseleafs"]}
    roots, leaves = [], 0
    for tree in range(6):
        first = 7 * tree
        roots.append(first)
        for node in range(7):
            # Members have to be small whole numbers, such as those of `tenure`.
            feature = int(random.integers(0, len(NUMBERS)))
            mode = int(random.integers(0, 7 if NUMBERS[feature] == "tenure" else 6))
            values = MATRIX[random.integers(0, ROWS, 3), feature].astype(dtype)
            modes.append(mode)
            features.append(feature)
            splits.append(values[0])
            gaps.append(int(random.random() < 0.3))
            members += [*values, numpy.nan] if mode == 6 else []
            for side, child in [("true", 2 * node + 1), ("false", 2 * node + 2)]:
                leaf = child >= 7
                ways[f"{side}nodeids"].append(leaves if leaf else first + child)
                ways[f"{side}leafs"].append(int(leaf))
                leaves += leaf

    def tensor(values):
        return onnx.numpy_helper.from_array(numpy.array(values, dtype=dtype))

    lists = {f"nodes_{key}": values for key, values in ways.items()}
    node = helper.make_node(
        "TreeEnsemble",
        ["X"],
        ["value"],
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function=aggregate,
        post_transform=transform,
        tree_roots=roots,
        nodes_modes=onnx.numpy_helper.from_array(numpy.array(modes, dtype=numpy.uint8)),
        nodes_splits=tensor(splits),
        nodes_featureids=features,
        nodes_missing_value_tracks_true=gaps,
        membership_values=tensor(members),
        leaf_targetids=[0] * leaves,
        leaf_weights=tensor(random.uniform(0, 0.15, leaves)),
        **lists,
    )
    matrix = helper.make_tensor_value_info("X", kind, [None, len(NUMBERS)])
    value = helper.make_tensor_value_info("value", kind, [None, 1])
    save_handmade(name, [node], [matrix], [value], 5)


def paper():
    """Forest, tree, XGBoost and LightGBM on the columns of each data set of the paper, on its codes."""
    data = pathlib.Path(os.environ["OVERTURN_DATA"])
    for file in sorted(data.glob("*.parquet")):
        table = pandas.read_parquet(file).drop(columns=["row_id", "split"])
        label = table.pop("label").astype("category").cat.codes.to_numpy()
        coded = {
            name: values if pandas.api.types.is_numeric_dtype(values) else values.astype("category").cat.codes
            for name, values in table.items()
        }
        matrix = pandas.DataFrame(coded).to_numpy().astype(numpy.float32)
        names = [f"f{at}" for at in range(matrix.shape[1])]
        pandas.DataFrame(matrix, columns=names).to_parquet(FOLDER / f"{file.stem}.parquet")
        kind = [("X", FloatTensorType([None, matrix.shape[1]]))]
        # Enough for models of the usual size; the scorers are compared on all rows.
        train = (matrix[:PAPER_ROWS], label[:PAPER_ROWS])
        for name, model in [
            ("forest", RandomForestClassifier(50, max_depth=15, random_state=1)),
            ("tree", DecisionTreeClassifier(random_state=1)),
        ]:
            exported = to_onnx(model.fit(*train), matrix[:1], options={id(model): {"zipmap": False}})
            (FOLDER / f"{file.stem}_{name}.onnx").write_bytes(exported.SerializeToString())
        boosted = xgboost.XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1).fit(*train)
        exported = convert_xgboost(boosted, initial_types=kind)
        (FOLDER / f"{file.stem}_xgboost.onnx").write_bytes(exported.SerializeToString())
        boosted = lightgbm.LGBMClassifier(n_estimators=100, verbose=-1, n_jobs=1).fit(*train)
        exported = convert_lightgbm(boosted, initial_types=kind, zipmap=False)
        (FOLDER / f"{file.stem}_lightgbm.onnx").write_bytes(exported.SerializeToString())


def main():
    if sys.argv[2:] == ["large"]:
        return large()
    if sys.argv[2:] == ["paper"]:
        return paper()
    FRAME.to_parquet(FOLDER / "frame.parquet")
    if sys.argv[2:] == ["native"]:
        return native()
    matrix_classifiers()
    pipeline("pipeline", zipmap=False)
    pipeline("pipeline_zipmap")
    encoded()
    boosted()
    regressor("forest_worth", RandomForestRegressor(12, max_depth=6, random_state=1))
    regressor("linear_worth", LinearRegression())
    handmade()


if __name__ == "__main__":
    main()
