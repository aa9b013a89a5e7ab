//! Where a feature's numbers stand in an encoded row: standardised numerics first, then the null
//! indicators of those that carry nulls, then a one-hot block per categorical (with a place of its own
//! for a carried null and for a carried unseen value). Features keep the schema's order in each part.

use serde::{Deserialize, Serialize};

use crate::feature::{
    Categorical, Feature, FeatureKind, FeatureSchema, FeatureStats, NULL_CODE, NullPolicy, Stats,
    UNSEEN_CODE, UnseenPolicy,
};

/// The meaning of an encoded row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Numbers per row.
    pub width: usize,
    /// Per feature, in the schema's order.
    pub slots: Vec<Slots>,
}

/// Where one feature stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Slots {
    /// A numeric feature.
    Numeric(NumericSlots),
    /// A categorical feature.
    Categorical(CategoricalSlots),
}

/// Where a numeric feature stands, and how it is standardised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumericSlots {
    /// The standardised value.
    pub value: usize,
    /// One where the value is null.
    pub null: Option<usize>,
    /// Subtracted first.
    pub mean: f64,
    /// Divided by; one for a constant column.
    pub std: f64,
    /// Cut at, for networks: beyond it are only numbers that the statistics leave out, or never saw.
    #[serde(default = "uncut")]
    pub cut: f32,
}

/// Generators of earlier versions cut nothing.
fn uncut() -> f32 {
    f32::MAX
}

/// Where a categorical feature's block stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CategoricalSlots {
    /// Place of the first value.
    pub first: usize,
    /// Listed values.
    pub values: usize,
    /// Place of a carried null.
    pub null: Option<usize>,
    /// Place of a carried unseen value.
    pub unseen: Option<usize>,
}

impl NumericSlots {
    /// A number as it stands in a row. The one formula for it: who asks whether a network gave a number back
    /// unchanged compares with this.
    #[inline]
    pub fn standardised(&self, number: f64) -> f32 {
        (((number - self.mean) * (1.0 / self.std)) as f32).clamp(-self.cut, self.cut)
    }
}

impl Slots {
    /// Places of the feature's values; a null indicator stands elsewhere.
    pub fn range(&self) -> std::ops::Range<usize> {
        match self {
            Slots::Numeric(slots) => slots.value..slots.value + 1,
            Slots::Categorical(slots) => slots.block(),
        }
    }
}

impl CategoricalSlots {
    /// Where the one of a code goes; none for a state that the layout does not carry.
    #[inline]
    pub fn slot(&self, code: u32) -> Option<usize> {
        match code {
            NULL_CODE => self.null,
            UNSEEN_CODE => self.unseen,
            code => Some(self.first + code as usize),
        }
    }

    /// Places of the whole block.
    pub fn block(&self) -> std::ops::Range<usize> {
        let states = usize::from(self.null.is_some()) + usize::from(self.unseen.is_some());
        self.first..self.first + self.values + states
    }
}

/// Hands out places from left to right.
struct SlotAllocator {
    next: usize,
}

impl SlotAllocator {
    fn take(&mut self, count: usize) -> usize {
        let first = self.next;
        self.next += count;
        first
    }
}

impl Layout {
    /// The layout of a schema's features, standardised by what was seen.
    pub fn new(schema: &FeatureSchema, stats: &Stats) -> Layout {
        let numerics = schema.features.iter().filter(|feature| feature.numeric().is_some()).count();
        let (mut values, mut rest) = (SlotAllocator { next: 0 }, SlotAllocator { next: numerics });
        let features = || schema.features.iter().zip(&stats.features);
        let mut slots: Vec<Option<Slots>> = features()
            .map(|(feature, seen)| numeric_slots(feature, seen, &mut values, &mut rest))
            .collect();
        for (feature, slot) in schema.features.iter().zip(&mut slots) {
            if let FeatureKind::Categorical(categorical) = &feature.kind {
                *slot = Some(categorical_slots(feature, categorical, &mut rest));
            }
        }
        Layout { width: rest.next, slots: slots.into_iter().flatten().collect() }
    }
}

/// Numbers that differ by less are one to networks; dividing by less would leave the range of numbers.
const SMALLEST_STD: f64 = 1e-150;

fn numeric_slots(
    feature: &Feature,
    seen: &FeatureStats,
    values: &mut SlotAllocator,
    rest: &mut SlotAllocator,
) -> Option<Slots> {
    let FeatureStats::Numeric(seen) = seen else { return None };
    let known = |number: f64, otherwise| if number.is_finite() { number } else { otherwise };
    let std = known(seen.std, 1.0);
    Some(Slots::Numeric(NumericSlots {
        value: values.take(1),
        null: (feature.nulls == NullPolicy::Carry).then(|| rest.take(1)),
        mean: known(seen.mean, 0.0),
        std: if std > SMALLEST_STD { std } else { 1.0 },
        cut: seen.deviations() as f32,
    }))
}

fn categorical_slots(
    feature: &Feature,
    categorical: &Categorical,
    rest: &mut SlotAllocator,
) -> Slots {
    Slots::Categorical(CategoricalSlots {
        first: rest.take(categorical.values.len()),
        values: categorical.values.len(),
        null: (feature.nulls == NullPolicy::Carry).then(|| rest.take(1)),
        unseen: (categorical.unseen == UnseenPolicy::Carry).then(|| rest.take(1)),
    })
}
