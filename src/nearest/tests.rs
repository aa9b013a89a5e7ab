//! The search as a whole, against going through all rows, against NumPy, and at its ends.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use serde::Deserialize;

use super::*;

/// All rows by the definition: each distance by itself, all of them sorted.
fn by_hand(points: &Points, query: &NearestQuery, k: usize) -> Vec<Neighbour> {
    let counts = |row: &usize| (query.target.0..=query.target.1).contains(&points.decisions[*row]);
    let neighbour = |row: usize| {
        let terms = query.features.iter().zip(&points.columns);
        let distance = terms.map(|(measure, column)| distance(measure, column, row));
        Neighbour { row: row as u32, distance: distance.fold(0.0, |sum, term| sum + term) }
    };
    let mut found: Vec<Neighbour> = (0..points.len).filter(counts).map(neighbour).collect();
    found.retain(|neighbour| neighbour.distance.is_finite());
    // Rows are in their order, and this sort keeps it where distances are equal.
    found.sort_by(|one, other| one.distance.total_cmp(&other.distance));
    found.truncate(k);
    found
}

fn distance(measure: &Measure, column: &PointColumn, row: usize) -> f32 {
    match (measure, column) {
        (Measure::Number { original, scale, low, high, outside }, PointColumn::Numbers(values)) => {
            let value = values[row];
            match (original.is_nan(), value.is_nan()) {
                (true, true) => 0.0,
                (true, false) | (false, true) => *outside,
                _ if (low <= &value && &value <= high) || value == *original => {
                    scale * (value - original).abs()
                }
                _ => outside + scale * (value - original).abs(),
            }
        }
        (Measure::Codes { costs, other_null, other_unseen }, PointColumn::Codes(codes)) => {
            match codes[row] {
                NULL_POINT => *other_null,
                code => costs.get(usize::from(code)).copied().unwrap_or(*other_unseen),
            }
        }
        _ => unreachable!("measures are made for the columns"),
    }
}

/// What a column is made of.
#[derive(Debug, Clone, Copy)]
enum ColumnKind {
    /// Numbers that seldom repeat.
    Fine,
    /// Numbers that often do, so that distances are equal.
    Coarse,
    /// Codes below this one.
    Codes(u16),
}

impl ColumnKind {
    fn any() -> impl Strategy<Value = ColumnKind> {
        // The last has more states than a box has bits.
        prop_oneof![
            Just(ColumnKind::Fine),
            Just(ColumnKind::Coarse),
            Just(ColumnKind::Codes(3)),
            Just(ColumnKind::Codes(70)),
            Just(ColumnKind::Codes(600)),
        ]
    }

    fn number(self) -> BoxedStrategy<f32> {
        match self {
            ColumnKind::Fine => prop_oneof![9 => -3.0..3.0f32, 1 => Just(f32::NAN)].boxed(),
            _ => {
                let coarse = (-3..=3i8).prop_map(|number| f32::from(number) * 0.5);
                prop_oneof![9 => coarse, 1 => Just(f32::NAN)].boxed()
            }
        }
    }

    fn column(self, len: usize) -> BoxedStrategy<PointColumn> {
        let ColumnKind::Codes(values) = self else {
            return vec(self.number(), len).prop_map(PointColumn::Numbers).boxed();
        };
        let code = prop_oneof![8 => 0..values, 1 => Just(NULL_POINT), 1 => Just(UNSEEN_POINT)];
        vec(code, len).prop_map(PointColumn::Codes).boxed()
    }

    fn measure(self) -> BoxedStrategy<Measure> {
        let ColumnKind::Codes(values) = self else {
            let bound = prop_oneof![Just(f32::INFINITY), -2.0..2.0f32, Just(0.5)];
            let scale = prop_oneof![Just(0.0), Just(0.1), 0.0..1.0f32];
            let number = (self.number(), scale, bound.clone(), bound, cost());
            return number
                .prop_map(|(original, scale, low, high, outside)| {
                    let low = if low == f32::INFINITY { f32::NEG_INFINITY } else { low };
                    Measure::Number { original, scale, low, high, outside }
                })
                .boxed();
        };
        // Now and then a code is beyond the table.
        let costs = vec(cost(), usize::from(values / 2)..usize::from(values) + 2);
        (costs, cost(), cost())
            .prop_map(|(costs, other_null, other_unseen)| Measure::Codes {
                costs,
                other_null,
                other_unseen,
            })
            .boxed()
    }
}

fn cost() -> impl Strategy<Value = f32> + Clone {
    prop_oneof![Just(0.0), Just(0.1), Just(0.5), Just(f32::INFINITY), 0.0..1.0f32]
}

/// Few decisions as of a classifier, or many as of a regression.
fn decisions(len: usize) -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        vec((0..4u8).prop_map(f64::from), len),
        vec((-100..100i16).prop_map(|value| f64::from(value) / 32.0), len),
    ]
}

fn case() -> impl Strategy<Value = (Points, NearestQuery, usize)> {
    (1..1300usize, vec(ColumnKind::any(), 0..6)).prop_flat_map(|(len, kinds)| {
        let columns: Vec<_> = kinds.iter().map(|kind| kind.column(len)).collect();
        let features: Vec<_> = kinds.iter().map(|kind| kind.measure()).collect();
        let target = (-4..4i8, 0..6u8).prop_map(|(low, width)| (low.into(), width.into()));
        let k = prop_oneof![1..12usize, 1..len + 4];
        (columns, decisions(len), features, target, k).prop_map(
            move |(columns, decisions, features, (low, width), k): (_, _, _, (f64, f64), _)| {
                let query = NearestQuery { features, target: (low, low + width) };
                (Points { len, columns, decisions, exact: Vec::new() }, query, k)
            },
        )
    })
}

proptest! {
    #[test]
    fn a_search_finds_what_going_through_all_rows_finds((points, query, k) in case()) {
        let index = Index::new(points.clone());
        let expected = by_hand(&points, &query, k);
        prop_assert_eq!(&index.search(&query, k), &expected);
        prop_assert_eq!(&index.search_boxes(&query, k), &expected);
    }

    #[test]
    fn values_are_read_by_row((points, _, _) in case()) {
        let index = Index::new(points.clone());
        for row in 0..points.len {
            let at = row as u32;
            prop_assert_eq!(index.decision(at), points.decisions[row]);
            for (feature, column) in points.columns.iter().enumerate() {
                match column {
                    PointColumn::Numbers(values) => {
                        prop_assert_eq!(index.number(feature, at).to_bits(), values[row].to_bits());
                    }
                    PointColumn::Codes(codes) => prop_assert_eq!(index.code(feature, at), codes[row]),
                }
            }
        }
    }
}

const ANY: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

fn free(original: f32) -> Measure {
    let (low, high) = (f32::NEG_INFINITY, f32::INFINITY);
    Measure::Number { original, scale: 1.0, low, high, outside: f32::INFINITY }
}

/// Rows 0, 1, 2, … with a number each, which is what was decided too.
fn line(numbers: &[f32]) -> Points {
    Points {
        len: numbers.len(),
        columns: vec![PointColumn::Numbers(numbers.to_vec())],
        decisions: numbers.iter().copied().map(f64::from).collect(),
        exact: vec![numbers.iter().copied().map(f64::from).collect()],
    }
}

fn rows_of(found: &[Neighbour]) -> Vec<u32> {
    found.iter().map(|neighbour| neighbour.row).collect()
}

#[test]
fn of_equal_rows_the_first_are_found() {
    let points = Points {
        len: 5_000,
        columns: vec![PointColumn::Numbers(vec![1.5; 5_000]), PointColumn::Codes(vec![3; 5_000])],
        decisions: vec![1.0; 5_000],
        exact: Vec::new(),
    };
    let codes = Measure::Codes { costs: vec![0.25; 4], other_null: 0.0, other_unseen: 0.0 };
    let query = NearestQuery { features: vec![free(1.0), codes], target: (1.0, 1.0) };
    let found = Index::new(points).search(&query, 300);
    assert_eq!(rows_of(&found), (0..300).collect::<Vec<u32>>());
    assert!(found.iter().all(|neighbour| neighbour.distance == 0.75));
}

#[test]
fn nothing_is_found_where_there_is_nothing_or_nothing_is_asked() {
    let query = NearestQuery { features: vec![free(0.0)], target: ANY };
    for empty in [Points::default(), line(&[])] {
        let index = Index::new(empty);
        assert!(index.is_empty() && index.search(&query, 5).is_empty());
    }
    assert!(Index::new(line(&[0.0, 1.0])).search(&query, 0).is_empty());
}

#[test]
fn one_row_is_found_or_does_not_count() {
    let index = Index::new(line(&[2.0]));
    let query = |target| NearestQuery { features: vec![free(0.5)], target };
    assert_eq!(index.len(), 1);
    assert_eq!(index.search(&query(ANY), 9), [Neighbour { row: 0, distance: 1.5 }]);
    assert_eq!(index.search(&query((2.0, 2.0)), 1).len(), 1);
    assert!(index.search(&query((2.1, 3.0)), 1).is_empty());
}

#[test]
fn a_range_of_a_regression_includes_its_ends() {
    let numbers: Vec<f32> = (0..2_000).map(|row| row as f32 / 8.0).collect();
    let query = NearestQuery { features: vec![free(0.0)], target: (100.0, 100.5) };
    let found = Index::new(line(&numbers)).search(&query, 10);
    assert_eq!(rows_of(&found), [800, 801, 802, 803, 804]);
}

#[test]
fn a_forbidden_direction_leaves_the_own_value_and_the_other_direction() {
    let numbers = vec![1.0, 2.0, 3.0, f32::NAN, 0.0];
    let points = Points {
        len: numbers.len(),
        columns: vec![PointColumn::Numbers(numbers)],
        decisions: vec![0.0; 5],
        exact: Vec::new(),
    };
    let index = Index::new(points);
    let found = |original, low, outside| {
        let measure = Measure::Number { original, scale: 1.0, low, high: f32::INFINITY, outside };
        let found = index.search(&NearestQuery { features: vec![measure], target: ANY }, 9);
        found.iter().map(|found| (found.row, found.distance)).collect::<Vec<_>>()
    };
    assert_eq!(found(1.0, 2.5, f32::INFINITY), [(0, 0.0), (2, 2.0)]);
    assert_eq!(found(1.0, 1.0, 4.0), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0)]);
    assert_eq!(found(f32::NAN, 1.0, f32::INFINITY), [(3, 0.0)]);
    assert_eq!(found(f32::NAN, 1.0, 0.0), [(0, 0.0), (1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0)]);
}

#[test]
fn memory_is_what_the_rows_and_little_more_take() {
    let numbers: Vec<f32> = (0..100_000).map(|row| row as f32).collect();
    let index = Index::new(line(&numbers));
    // A number standardised and as it was, a decision, and a row's place both ways.
    let least = 100_000 * (4 + 8 + 8 + 4 + 4);
    assert!((least..least * 11 / 10).contains(&index.memory()), "{}", index.memory());
}

#[test]
fn an_index_can_be_shared() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&Index::new(Points::default()));
}

#[derive(Deserialize)]
struct Oracle {
    unit: f32,
    numbers: Vec<Vec<Option<f32>>>,
    codes: Vec<Vec<i32>>,
    classes: Vec<f64>,
    values: Vec<f64>,
    queries: Vec<OracleQuery>,
}

#[derive(Deserialize)]
struct OracleQuery {
    numbers: Vec<OracleNumber>,
    codes: Vec<OracleCodes>,
    decisions: String,
    #[serde(rename = "wanted")]
    target: (f64, f64),
    k: usize,
    rows: Vec<u32>,
    distances: Vec<f32>,
}

/// Own value, scale, low, high and cost outside.
#[derive(Deserialize)]
struct OracleNumber(Option<f32>, f32, Option<f32>, Option<f32>, Option<f32>);

#[derive(Deserialize)]
struct OracleCodes {
    length: usize,
    cost: f32,
    special: Vec<(usize, Option<f32>)>,
    null: Option<f32>,
    unseen: Option<f32>,
}

impl Oracle {
    fn points(&self, decisions: Vec<f64>) -> Points {
        let number = |number: &Option<f32>| number.map_or(f32::NAN, |number| number * self.unit);
        let code = |code: &i32| match code {
            -1 => NULL_POINT,
            -2 => UNSEEN_POINT,
            code => u16::try_from(*code).expect("a code"),
        };
        let numbers = self.numbers.iter().map(|values| values.iter().map(number).collect());
        let codes = self.codes.iter().map(|codes| codes.iter().map(code).collect());
        let columns =
            numbers.map(PointColumn::Numbers).chain(codes.map(PointColumn::Codes)).collect();
        Points { len: decisions.len(), columns, decisions, exact: Vec::new() }
    }
}

impl OracleNumber {
    fn measure(&self) -> Measure {
        Measure::Number {
            original: self.0.unwrap_or(f32::NAN),
            scale: self.1,
            low: self.2.unwrap_or(f32::NEG_INFINITY),
            high: self.3.unwrap_or(f32::INFINITY),
            outside: self.4.unwrap_or(f32::INFINITY),
        }
    }
}

impl OracleCodes {
    fn measure(&self) -> Measure {
        let mut costs = vec![self.cost; self.length];
        for (code, cost) in &self.special {
            costs[*code] = cost.unwrap_or(f32::INFINITY);
        }
        let [other_null, other_unseen] =
            [self.null, self.unseen].map(|cost| cost.unwrap_or(f32::INFINITY));
        Measure::Codes { costs, other_null, other_unseen }
    }
}

/// Rows that are nearer than the farthest by more than rounding: no tie decides on those.
fn surely(rows: impl Iterator<Item = (u32, f32)>, farthest: f32) -> BTreeSet<u32> {
    rows.filter(|(_, distance)| *distance < farthest - TOLERANCE).map(|(row, _)| row).collect()
}

const TOLERANCE: f32 = 1e-5;

#[test]
fn numpy_finds_the_same_rows() {
    let text = include_str!("../../tests/oracle/nearest.json");
    let oracle: Oracle = serde_json::from_str(text).expect("the oracle's file");
    let classes = Index::new(oracle.points(oracle.classes.clone()));
    let values = oracle.values.iter().map(|value| value * f64::from(oracle.unit)).collect();
    let values = Index::new(oracle.points(values));
    for (number, expected) in oracle.queries.iter().enumerate() {
        let numbers = expected.numbers.iter().map(OracleNumber::measure);
        let features = numbers.chain(expected.codes.iter().map(OracleCodes::measure)).collect();
        let query = NearestQuery { features, target: expected.target };
        let index = if expected.decisions == "classes" { &classes } else { &values };
        let found = index.search(&query, expected.k);
        assert_eq!(found.len(), expected.rows.len(), "query {number}");
        for (neighbour, distance) in found.iter().zip(&expected.distances) {
            assert!((neighbour.distance - distance).abs() <= TOLERANCE, "query {number}");
        }
        // Where fewer than asked for are found, these are all that count.
        let all = found.len() < expected.k;
        let farthest = expected.distances.last().copied().filter(|_| !all).unwrap_or(f32::MAX);
        let original = surely(found.iter().map(|found| (found.row, found.distance)), farthest);
        let pairs = expected.rows.iter().copied().zip(expected.distances.iter().copied());
        assert_eq!(original, surely(pairs, farthest), "query {number}");
    }
}
