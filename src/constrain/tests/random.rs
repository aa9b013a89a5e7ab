//! Random schemas, tables with bounds of single rows, and network outputs.

use arrow::array::{Float64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use proptest::prelude::*;
use proptest::sample::select;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::examples::text_lists;
use super::*;
use crate::feature::{
    BrokenPolicy, Categorical, Change, Derived, Feature, GridPolicy, Limit, NullPolicy, Numeric,
    OutsidePolicy, Rule, UnseenPolicy, from_numbers, from_texts,
};

/// A feature with its column's type and whether rows have bounds of their own.
#[derive(Debug, Clone)]
pub(crate) struct Drawn {
    feature: Feature,
    data_type: DataType,
    bounded: bool,
    /// Added to all numbers, to see that rounding stays small beside large ones.
    offset: f64,
    /// Steps in one that most numbers are multiples of; 0 for none.
    per_one: f64,
}

fn numeric_type() -> impl Strategy<Value = DataType> {
    use DataType::*;
    select(vec![
        Float64,
        Float64,
        Float32,
        Float16,
        Int8,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt64,
        Date32,
        Date64,
        Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Decimal128(12, 2),
        Decimal64(10, 1),
        Decimal32(6, 0),
    ])
}

fn limit() -> impl Strategy<Value = Option<Limit>> {
    let ends = (select(vec![0.0, 0.29, 1.0, 5.0, 30.0]), select(vec![0.0, 0.1, 7.0, 12.5]));
    let absolute = ends.prop_map(|(down, up)| Limit { down, up, share: false });
    let shares = (0.0..1.0f64, select(vec![0.0, 0.29, 0.7, 1.0]));
    let share = shares.prop_map(|(down, up)| Limit { down, up, share: true });
    prop_oneof![2 => Just(None), 1 => absolute.prop_map(Some), 1 => share.prop_map(Some)]
}

fn numeric() -> impl Strategy<Value = Drawn> {
    use Change::*;
    let range = vec![None, None, Some((-20.0, 20.0)), Some((-50.5, 60.25)), Some((5.0, 5.0))];
    let keys = (
        select(vec![None, Some(true), Some(false)]),
        select(range),
        select(vec![None, None, Some(0.1), Some(0.25), Some(1.0), Some(2.5), Some(7.0)]),
        limit(),
        select(vec![GridPolicy::Observed, GridPolicy::Observed, GridPolicy::None]),
    );
    let kind = keys.prop_map(|(integer, range, step, limit, grid)| {
        let outside = OutsidePolicy::Carry;
        FeatureKind::Numeric(Numeric {
            integer,
            range,
            step,
            grid,
            tolerance: None,
            limit,
            outside,
            fill: None,
        })
    });
    let change = select(vec![Any, Any, Never, Increase, Decrease]);
    let per_one = select(vec![0.0, 0.0, 0.2, 4.0, 10.0, 100.0]);
    (kind, change, any::<(bool, bool, bool)>(), numeric_type(), per_one).prop_map(
        |(kind, change, (carried, bounded, large), data_type, per_one)| {
            let nulls = if carried { NullPolicy::Carry } else { NullPolicy::Reject };
            let large = large && matches!(data_type, DataType::Float64 | DataType::Int64);
            let offset = if large { 1e6 } else { 0.0 };
            let feature =
                Feature { name: String::new(), change, nulls, cost: 1.0, reason: None, kind };
            Drawn { feature, data_type, bounded, offset, per_one }
        },
    )
}

fn category_type() -> impl Strategy<Value = DataType> {
    use DataType::*;
    let dictionary = Dictionary(Box::new(Int16), Box::new(Utf8));
    select(vec![Utf8, LargeUtf8, Utf8View, Int32, dictionary])
}

fn categorical() -> impl Strategy<Value = Drawn> {
    let values = prop_oneof![4 => 1..6usize, 1 => Just(70usize)];
    let allowed = values.prop_flat_map(|values| prop::collection::vec(any::<bool>(), values));
    let flags = any::<(bool, bool, bool, bool, bool)>();
    let change = select(vec![Change::Any, Change::Increase, Change::Decrease, Change::Never]);
    (allowed, flags, category_type(), change).prop_map(|(allowed, flags, data_type, change)| {
        let (never, null, unseen, bounded, ordered) = flags;
        // Every value has another rank than its code.
        let count = allowed.len() as u32;
        let ranks = ordered.then(|| (0..count).map(|code| (code + 1) % count).collect());
        let kind = FeatureKind::Categorical(Categorical {
            values: (0..allowed.len()).map(|value| value.to_string()).collect(),
            allowed,
            unseen: if unseen { UnseenPolicy::Carry } else { UnseenPolicy::Reject },
            fill: None,
            ranks,
        });
        let plain = if never { Change::Never } else { Change::Any };
        let change = if ordered { change } else { plain };
        let nulls = if null { NullPolicy::Carry } else { NullPolicy::Reject };
        let feature = Feature { name: String::new(), change, nulls, cost: 1.0, reason: None, kind };
        Drawn { feature, data_type, bounded, offset: 0.0, per_one: 0.0 }
    })
}

/// A schema, its rows, and a seed for outputs.
pub(crate) fn case() -> impl Strategy<Value = (Vec<Drawn>, usize, u64)> {
    let feature = prop_oneof![3 => numeric(), 2 => categorical()];
    (prop::collection::vec(feature, 1..6), 1..40usize, any::<u64>())
}

/// The table of a drawn schema.
pub(crate) fn table(columns: &[Drawn], rows: usize, dice: &mut CaseRandom) -> Case {
    drawn_table(columns, rows, dice, |schema| schema)
}

/// The same with rules between its features, and one that follows from others.
pub(crate) fn coupled_table(
    columns: &[Drawn],
    rows: usize,
    dice: &mut CaseRandom,
    seed: u64,
) -> Case {
    drawn_table(columns, rows, dice, |schema| coupled(schema, seed))
}

/// A schema with rules between neighbouring features, some of them broken by many rows.
fn coupled(mut schema: FeatureSchema, seed: u64) -> FeatureSchema {
    let features = &mut schema.features;
    let of_kind = |features: &[Feature], numeric: bool| -> Vec<usize> {
        let kind = |index: &usize| features[*index].numeric().is_some() == numeric;
        (0..features.len()).filter(kind).collect()
    };
    let (numbers, categories) = (of_kind(features, true), of_kind(features, false));
    let mut texts = Vec::new();
    for (index, pair) in numbers.windows(2).enumerate() {
        texts.push(match (seed >> index) % 4 {
            0 => format!("f{} <= f{}", pair[0], pair[1]),
            1 => format!("f{} < 2 * f{} + 3", pair[1], pair[0]),
            2 => format!("f{} IS NULL OR f{} >= f{} - 10", pair[0], pair[0], pair[1]),
            _ => format!("NOT (f{} > 5 AND f{} > 5)", pair[0], pair[1]),
        });
    }
    for (number, category) in numbers.iter().zip(&categories) {
        texts.push(format!("f{category} <> '0' OR f{number} < 4"));
    }
    if let [one, two, ..] = categories[..] {
        texts.push(format!("f{one} = '0' OR f{two} = '0'"));
    }
    let policies = [BrokenPolicy::KeepNoWorse, BrokenPolicy::Ignore];
    let broken = policies[(seed % 2) as usize];
    schema.rules = texts
        .iter()
        .map(|text| Rule::parse(text, broken, features).expect("a good rule"))
        .collect();
    if let ([first, second, third, ..], true) = (&numbers[..], seed.is_multiple_of(3)) {
        let text = format!("f{second} / 2 - f{third}");
        let derived = Derived::parse(*first, &text, features).expect("a good number");
        schema.derived = vec![derived];
        features[*first].change = Change::Never;
    }
    schema
}

fn drawn_table(
    columns: &[Drawn],
    rows: usize,
    dice: &mut CaseRandom,
    couple: impl Fn(FeatureSchema) -> FeatureSchema,
) -> Case {
    let named = |(index, column): (usize, &Drawn)| {
        let feature = Feature { name: format!("f{index}"), ..column.feature.clone() };
        Drawn { feature, ..column.clone() }
    };
    let columns: Vec<Drawn> = columns.iter().enumerate().map(named).collect();
    let (mut cells, mut bounds) = (Vec::new(), Vec::new());
    for column in &columns {
        let name = &column.feature.name;
        match &column.feature.kind {
            FeatureKind::Numeric(_) => {
                let (array, ends) = dice.numbers(column, rows);
                cells.push((name.clone(), array));
                let ends = ends.into_iter().filter(|_| column.bounded);
                bounds.extend(ends.map(|(suffix, end)| (format!("{name}{suffix}"), end)));
            }
            FeatureKind::Categorical(categorical) => {
                cells.push((name.clone(), dice.categories(column, categorical, rows)));
                if column.bounded {
                    bounds.push((format!("{name}__allowed"), dice.lists(categorical, rows)));
                }
            }
        }
    }
    let schema = FeatureSchema {
        features: columns.into_iter().map(|drawn| drawn.feature).collect(),
        ..FeatureSchema::default()
    };
    let schema = couple(schema);
    let all = cells.into_iter().chain(bounds).map(|(name, column)| (name, column, true));
    let table = RecordBatch::try_from_iter_with_nullable(all).expect("columns of one length");
    Case::new(schema, &table, rows.div_ceil(2))
}

/// Random numbers of one case.
pub(crate) struct CaseRandom(pub(crate) ChaCha8Rng);

impl CaseRandom {
    pub(crate) fn new(seed: u64) -> CaseRandom {
        CaseRandom(ChaCha8Rng::seed_from_u64(seed))
    }

    fn below(&mut self, most: usize) -> usize {
        (self.0.next_u64() % most as u64) as usize
    }

    fn uniform(&mut self) -> f64 {
        self.0.next_u32() as f64 / 4_294_967_296.0
    }

    /// A numeric column, and columns of bounds around its numbers.
    fn numbers(
        &mut self,
        column: &Drawn,
        rows: usize,
    ) -> (ArrayRef, Vec<(&'static str, ArrayRef)>) {
        let carried = column.feature.nulls == NullPolicy::Carry;
        let numbers: Vec<Option<f64>> = (0..rows)
            .map(|_| {
                let number = column.offset + 200.0 * self.uniform() - 100.0;
                let rounded = (number * column.per_one).round() / column.per_one;
                // A few numbers are beside the step of the others.
                let off = rounded.is_nan() || self.below(30) == 0;
                let number = if off { number } else { rounded };
                match self.below(8) {
                    0 if carried => None,
                    1 if carried && column.data_type.is_floating() => Some(f64::NAN),
                    _ => Some(number),
                }
            })
            .collect();
        let plain = Float64Array::from(numbers.clone());
        let cells = from_numbers(&plain, &column.data_type).expect("numbers fit");
        let mut ends = |side: f64| {
            let end = |number: &Option<f64>| {
                let number = number.unwrap_or(0.0).max(-1e9) + side * 40.0 * (self.uniform() - 0.2);
                (self.below(3) > 0).then_some(number)
            };
            shared(Float64Array::from(numbers.iter().map(end).collect::<Vec<_>>()))
        };
        (cells, vec![("__min", ends(-1.0)), ("__max", ends(1.0))])
    }

    fn categories(&mut self, column: &Drawn, categorical: &Categorical, rows: usize) -> ArrayRef {
        let texts: Vec<Option<String>> = (0..rows)
            .map(|_| match self.below(8) {
                0 if column.feature.nulls == NullPolicy::Carry => None,
                1 if categorical.unseen == UnseenPolicy::Carry => {
                    Some((1000 + self.below(3)).to_string())
                }
                _ => Some(categorical.values[self.below(categorical.values.len())].clone()),
            })
            .collect();
        let texts = from_texts(texts.iter().map(Option::as_deref), &DataType::Utf8);
        cast(&texts.expect("texts"), &column.data_type).expect("texts convert")
    }

    fn lists(&mut self, categorical: &Categorical, rows: usize) -> ArrayRef {
        let lists: Vec<Option<Vec<&str>>> = (0..rows)
            .map(|_| {
                let some = categorical.values.iter().filter(|_| self.below(2) == 0);
                let some: Vec<&str> = some.map(String::as_str).chain(["unheard-of"]).collect();
                (self.below(3) > 0).then_some(some)
            })
            .collect();
        text_lists(lists.into_iter().map(|list| Some(list?.into_iter().map(Some).collect())))
    }

    /// What a network might give: near the rows, far from them, and no numbers at all.
    pub(crate) fn output(&mut self, case: &Case) -> Dense {
        let mut dense = case.encoder.encode_rows(&case.rows);
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, f32::MAX, -0.0];
        for value in &mut dense.values {
            *value = match self.below(8) {
                0 => *value,
                1 => odd[self.below(odd.len())],
                2..5 => *value + (self.uniform() - 0.5) as f32,
                _ => 6.0 * (self.uniform() - 0.5) as f32,
            };
        }
        dense
    }
}
