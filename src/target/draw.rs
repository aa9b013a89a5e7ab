//! Which rows and which targets a training step gets: rows in shuffled epochs without replacement,
//! targets uniform over all labels, the row's own included; either balanced on request.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{TargetCodec, Wishes};
use crate::job::{Target, TargetsKind};
use crate::predictor::{NO_CLASS, Outcome, Scores};

/// Rows of the training table in a random order, over and over.
#[derive(Debug, Clone)]
pub struct RowOrder {
    /// Rows in groups that take turns: one group, or one per predicted class.
    groups: Vec<Group>,
    turn: usize,
}

#[derive(Debug, Clone)]
struct Group {
    rows: Vec<u32>,
    next: usize,
    random: ChaCha8Rng,
}

impl RowOrder {
    /// All rows alike; or, with labels, every class equally often.
    pub fn new(rows: usize, labels: Option<&[u32]>, random: &mut ChaCha8Rng) -> RowOrder {
        let classes =
            labels.and_then(|labels| labels.iter().filter(|label| **label != NO_CLASS).max());
        let mut groups = vec![Vec::new(); classes.map_or(1, |most| *most as usize + 1)];
        for row in 0..rows as u32 {
            match labels.map(|labels| labels[row as usize]) {
                Some(NO_CLASS) => {}
                label => groups[label.unwrap_or(0) as usize].push(row),
            }
        }
        let group = |rows: Vec<u32>| {
            let next = rows.len();
            Group { rows, next, random: ChaCha8Rng::seed_from_u64(random.next_u64()) }
        };
        RowOrder {
            groups: groups.into_iter().filter(|rows| !rows.is_empty()).map(group).collect(),
            turn: 0,
        }
    }

    /// The next rows.
    pub fn next(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.one()).collect()
    }

    fn one(&mut self) -> u32 {
        self.turn = (self.turn + 1) % self.groups.len();
        let group = &mut self.groups[self.turn];
        if group.next == group.rows.len() {
            group.rows.shuffle(&mut group.random);
            group.next = 0;
        }
        group.next += 1;
        group.rows[group.next - 1]
    }
}

/// Draws y_T.
#[derive(Debug, Clone)]
pub struct TargetSampler {
    /// Cumulative weights of the classes that are asked for.
    classes: Vec<(u32, f64)>,
    kind: TargetsKind,
    /// All classes of the model.
    width: usize,
    /// The model's distributions on the training rows, to ask for such ones.
    distributions: Vec<f32>,
    /// The model's values on the training rows, ascending.
    values: Vec<f64>,
    /// Half the width of a wanted range.
    half: f64,
    /// The job's own range, asked for every other time.
    range: Option<(f64, f64)>,
    /// The job's own class.
    class: Option<u32>,
}

/// Of the spread of a model's values, the least half-width of a range that is asked for in training.
const NARROWEST: f64 = 0.01;

impl TargetSampler {
    /// A sampler for a model of which this is known. Classes that it never predicted are asked for only
    /// if the job names them: nobody knows whether they can be had.
    pub fn new(codec: &TargetCodec, scores: &Scores, target: Option<&Target>) -> TargetSampler {
        let mut sampler = TargetSampler {
            classes: Vec::new(),
            kind: TargetsKind::Label,
            width: codec.wish_width(),
            distributions: Vec::new(),
            values: Vec::new(),
            half: 0.0,
            range: None,
            class: None,
        };
        match (codec, &scores.outcome) {
            (
                TargetCodec::Classes { classes, kind },
                Outcome::Classes { labels, probabilities },
            ) => {
                if let Some(Target::Class(class)) = target {
                    sampler.class = (0u32..)
                        .zip(classes)
                        .find(|(_, own)| *own == class)
                        .map(|(index, _)| index);
                }
                let wanted = |index: &u32| sampler.class == Some(*index) || labels.contains(index);
                let asked = (0..classes.len() as u32).filter(wanted);
                sampler.classes = asked.map(|index| (index, 1.0)).collect();
                sampler.kind = *kind;
                if *kind == TargetsKind::Distribution {
                    let all = probabilities.iter().flatten();
                    sampler.distributions = all.map(|share| *share as f32).collect();
                }
            }
            (TargetCodec::Range { std, .. }, Outcome::Values(values)) => {
                sampler.values = values.iter().copied().filter(|value| value.is_finite()).collect();
                sampler.values.sort_by(f64::total_cmp);
                let half = match target {
                    Some(Target::Range { low, high }) => (high - low) / 2.0,
                    Some(Target::Column { tolerance, .. }) => *tolerance,
                    _ => 0.0,
                };
                sampler.half = half.max(NARROWEST * std);
                if let Some(Target::Range { low, high }) = target {
                    sampler.range = Some((*low, *high));
                }
            }
            _ => {}
        }
        sampler
    }

    /// Classes that are asked for.
    pub fn classes(&self) -> impl Iterator<Item = u32> {
        self.classes.iter().map(|(class, _)| *class)
    }

    /// Asks for classes in proportion to these weights from now on.
    pub fn weigh(&mut self, weight: impl Fn(u32) -> f64) {
        for (class, share) in &mut self.classes {
            *share = weight(*class);
        }
    }

    /// y_T for training: any label, the row's own too.
    pub fn draw(&self, rows: usize, random: &mut impl Rng) -> Wishes {
        self.draw_but(rows, |_| NO_CLASS, random)
    }

    /// y_T for judging: the job's own target or any label, but never the one the row has.
    pub fn draw_other(&self, labels: &[u32], random: &mut impl Rng) -> Wishes {
        let mut wishes = self.draw_but(labels.len(), |row| labels[row], random);
        if let (Some(own), Wishes::Classes { classes, .. }) = (self.class, &mut wishes) {
            for (class, label) in classes.iter_mut().zip(labels) {
                *class = if *label == own { *class } else { own };
            }
        }
        wishes
    }

    fn draw_but(&self, rows: usize, own: impl Fn(usize) -> u32, random: &mut impl Rng) -> Wishes {
        if self.classes.is_empty() {
            return self.ranges(rows, random);
        }
        if !self.distributions.is_empty() {
            return self.draw_distributions(rows, random);
        }
        let classes: Vec<u32> = (0..rows).map(|row| self.class(own(row), random)).collect();
        let least = |_| match self.kind {
            TargetsKind::Probability => random.random_range(0.5..0.95),
            _ => 0.0,
        };
        let probabilities = (0..rows).map(least).collect();
        Wishes::Classes { classes, probabilities }
    }

    fn class(&self, own: u32, random: &mut impl Rng) -> u32 {
        let others = || self.classes.iter().filter(|(class, _)| *class != own);
        let total: f64 = others().map(|(_, weight)| weight).sum();
        let mut left = random.random_range(0.0..1.0) * total;
        for (class, weight) in others() {
            left -= weight;
            if left < 0.0 {
                return *class;
            }
        }
        others().next_back().map_or(own, |(class, _)| *class)
    }

    fn draw_distributions(&self, rows: usize, random: &mut impl Rng) -> Wishes {
        let width = self.width;
        let examples = self.distributions.len() / width;
        let mut values = Vec::with_capacity(rows * width);
        for _ in 0..rows {
            let example = random.random_range(0..examples) * width;
            values.extend_from_slice(&self.distributions[example..example + width]);
        }
        let classes = values.chunks_exact(width).map(most_probable).collect();
        Wishes::Distributions { classes, values }
    }

    fn ranges(&self, rows: usize, random: &mut impl Rng) -> Wishes {
        let mut low = Vec::with_capacity(rows);
        let mut high = Vec::with_capacity(rows);
        for _ in 0..rows {
            let own = self.range.filter(|_| random.random_bool(0.5));
            let (from, to) = own.unwrap_or_else(|| {
                let centre = self.values[random.random_range(0..self.values.len())];
                (centre - self.half, centre + self.half)
            });
            low.push(from);
            high.push(to);
        }
        Wishes::Ranges { low, high }
    }

    /// The job's own range for every row, if it has one.
    pub fn own_range(&self, rows: usize) -> Option<Wishes> {
        let (low, high) = self.range?;
        Some(Wishes::Ranges { low: vec![low; rows], high: vec![high; rows] })
    }
}

fn most_probable(row: &[f32]) -> u32 {
    let mut best = 0;
    for (class, share) in row.iter().enumerate() {
        if *share > row[best] {
            best = class;
        }
    }
    best as u32
}
