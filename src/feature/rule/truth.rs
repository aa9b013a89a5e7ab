//! Predicates and arithmetic on the cells of one row. Nulls are unknown, as in SQL; so is a division by zero.

use crate::feature::{Cell, NULL_CODE, UNSEEN_CODE};

/// A sign of arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithmeticOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// A number that is computed from a row.
#[derive(Debug, Clone, PartialEq)]
pub enum NumberExpression {
    /// A numeric feature's value.
    Feature(usize),
    /// A constant.
    Literal(f64),
    /// Two numbers, computed.
    Computed(ArithmeticOperator, Box<NumberExpression>, Box<NumberExpression>),
    /// A number rounded to so many decimals.
    Rounded(Box<NumberExpression>, u8),
}

impl ArithmeticOperator {
    /// What it makes of two numbers.
    pub fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            ArithmeticOperator::Add => left + right,
            ArithmeticOperator::Subtract => left - right,
            ArithmeticOperator::Multiply => left * right,
            ArithmeticOperator::Divide => left / right,
        }
    }

    /// As it is written.
    pub fn sign(self) -> char {
        match self {
            ArithmeticOperator::Add => '+',
            ArithmeticOperator::Subtract => '-',
            ArithmeticOperator::Multiply => '*',
            ArithmeticOperator::Divide => '/',
        }
    }
}

/// How two numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparisonOperator {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
}

/// A predicate. There is no negation: it is pushed down to the comparisons when a text is parsed.
#[derive(Debug, Clone, PartialEq)]
pub enum Truth {
    /// Two numbers compared.
    Compare(ComparisonOperator, NumberExpression, NumberExpression),
    /// A categorical feature has one of some values.
    OneOf {
        /// The feature.
        feature: usize,
        /// Per code whether it is one of them.
        codes: Vec<bool>,
        /// Whether a value that is not listed is.
        unseen: bool,
    },
    /// Two categorical features have the same value, or not.
    SameText {
        /// The first feature …
        left: usize,
        /// … the second …
        right: usize,
        /// … and per code of the first the second's code of the same text.
        codes: Vec<Option<u32>>,
        /// Whether they are to be the same.
        same: bool,
    },
    /// Two categorical features have no excluded combination of values.
    Combination {
        /// The two features.
        features: (usize, usize),
        /// By the first's code times `width` plus the second's: whether the two are excluded.
        excluded: Vec<bool>,
        /// Values of the second.
        width: usize,
    },
    /// A feature is null, or is not.
    Null {
        /// The feature.
        feature: usize,
        /// Whether it is to be null.
        is: bool,
    },
    /// All of these.
    All(Vec<Truth>),
    /// One of these.
    Any(Vec<Truth>),
}

impl NumberExpression {
    /// Its value in a row; NaN where it has none.
    pub fn value<F: Fn(usize) -> Cell>(&self, cell: &F) -> f64 {
        match self {
            NumberExpression::Feature(feature) => match cell(*feature) {
                Cell::Number(number) => number,
                Cell::Code(_) => f64::NAN,
            },
            NumberExpression::Literal(number) => *number,
            NumberExpression::Computed(operator, left, right) => {
                let value = operator.apply(left.value(cell), right.value(cell));
                if value.is_finite() { value } else { f64::NAN }
            }
            NumberExpression::Rounded(number, decimals) => {
                let (value, power) = (number.value(cell), 10f64.powi(i32::from(*decimals)));
                let rounded = (value * power).round() / power;
                // What is too large for that has no decimals.
                if rounded.is_finite() { rounded } else { value }
            }
        }
    }

    /// Tells every feature that it reads.
    pub fn visit_features(&self, visit: &mut impl FnMut(usize)) {
        match self {
            NumberExpression::Feature(feature) => visit(*feature),
            NumberExpression::Literal(_) => {}
            NumberExpression::Computed(_, left, right) => {
                left.visit_features(visit);
                right.visit_features(visit);
            }
            NumberExpression::Rounded(number, _) => number.visit_features(visit),
        }
    }

    /// The same before it is rounded.
    pub fn before_rounding(&self) -> &NumberExpression {
        match self {
            NumberExpression::Rounded(number, _) => number,
            other => other,
        }
    }
}

impl ComparisonOperator {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            ComparisonOperator::Less => left < right,
            ComparisonOperator::LessOrEqual => left <= right,
            ComparisonOperator::Greater => left > right,
            ComparisonOperator::GreaterOrEqual => left >= right,
            ComparisonOperator::Equal => left == right,
            ComparisonOperator::NotEqual => left != right,
        }
    }

    /// What holds where this does not.
    pub fn negated(self) -> ComparisonOperator {
        match self {
            ComparisonOperator::Less => ComparisonOperator::GreaterOrEqual,
            ComparisonOperator::LessOrEqual => ComparisonOperator::Greater,
            ComparisonOperator::Greater => ComparisonOperator::LessOrEqual,
            ComparisonOperator::GreaterOrEqual => ComparisonOperator::Less,
            ComparisonOperator::Equal => ComparisonOperator::NotEqual,
            ComparisonOperator::NotEqual => ComparisonOperator::Equal,
        }
    }
}

impl Truth {
    /// Whether it holds in a row; none if a null leaves that open.
    pub fn holds<F: Fn(usize) -> Cell>(&self, cell: &F) -> Option<bool> {
        match self {
            Truth::Compare(comparison, left, right) => {
                let (left, right) = (left.value(cell), right.value(cell));
                let known = !left.is_nan() && !right.is_nan();
                known.then(|| comparison.holds(left, right))
            }
            Truth::OneOf { feature, codes, unseen } => match code(cell(*feature))? {
                UNSEEN_CODE => Some(*unseen),
                code => Some(codes.get(code as usize).copied().unwrap_or(false)),
            },
            Truth::SameText { left, right, codes, same } => {
                let (left, right) = (code(cell(*left))?, code(cell(*right))?);
                // Whether two unseen values are the same is not known.
                if left == UNSEEN_CODE && right == UNSEEN_CODE {
                    return None;
                }
                let equal = codes.get(left as usize).is_some_and(|of| *of == Some(right));
                Some(equal == *same)
            }
            Truth::Combination { features, excluded, width } => {
                let (first, second) = (code(cell(features.0))?, code(cell(features.1))?);
                let listed = (second as usize) < *width;
                let at = listed.then(|| excluded.get(first as usize * width + second as usize));
                Some(!at.flatten().copied().unwrap_or(false))
            }
            Truth::Null { feature, is } => {
                let null = match cell(*feature) {
                    Cell::Number(number) => number.is_nan(),
                    Cell::Code(code) => code == NULL_CODE,
                };
                Some(null == *is)
            }
            Truth::All(parts) => all(parts.iter().map(|part| part.holds(cell))),
            Truth::Any(parts) => {
                all(parts.iter().map(|part| part.holds(cell).map(|holds| !holds))).map(|none| !none)
            }
        }
    }

    /// By how much it is broken: nothing where it holds or is unknown, the difference of two compared numbers,
    /// 1 for a value that may not be; of alternatives the least.
    pub fn excess<F: Fn(usize) -> Cell>(&self, cell: &F) -> f64 {
        if self.holds(cell) != Some(false) {
            return 0.0;
        }
        match self {
            Truth::Compare(ComparisonOperator::NotEqual, ..) => 1.0,
            Truth::Compare(_, left, right) => (left.value(cell) - right.value(cell)).abs(),
            Truth::All(parts) => parts.iter().map(|part| part.excess(cell)).sum(),
            Truth::Any(parts) => {
                parts.iter().map(|part| part.excess(cell)).fold(f64::INFINITY, f64::min)
            }
            _ => 1.0,
        }
    }

    /// Tells every feature that it reads.
    pub fn visit_features(&self, visit: &mut impl FnMut(usize)) {
        match self {
            Truth::Compare(_, left, right) => {
                left.visit_features(visit);
                right.visit_features(visit);
            }
            Truth::OneOf { feature, .. } | Truth::Null { feature, .. } => visit(*feature),
            Truth::SameText { left, right, .. } => [*left, *right].into_iter().for_each(visit),
            Truth::Combination { features, .. } => {
                [features.0, features.1].into_iter().for_each(visit);
            }
            Truth::All(parts) | Truth::Any(parts) => {
                parts.iter().for_each(|part| part.visit_features(visit));
            }
        }
    }

    /// Tells the two sides of every comparison of numbers.
    pub fn visit_comparisons<'a>(
        &'a self,
        visit: &mut impl FnMut(&'a NumberExpression, &'a NumberExpression),
    ) {
        match self {
            Truth::Compare(_, left, right) => visit(left, right),
            Truth::All(parts) | Truth::Any(parts) => {
                parts.iter().for_each(|part| part.visit_comparisons(visit));
            }
            _ => {}
        }
    }

    /// What holds where this does not.
    pub fn negated(self) -> Truth {
        match self {
            Truth::Compare(comparison, left, right) => {
                Truth::Compare(comparison.negated(), left, right)
            }
            Truth::OneOf { feature, codes, unseen } => {
                let codes = codes.into_iter().map(|one| !one).collect();
                Truth::OneOf { feature, codes, unseen: !unseen }
            }
            Truth::SameText { left, right, codes, same } => {
                Truth::SameText { left, right, codes, same: !same }
            }
            Truth::Combination { features, excluded, width } => {
                let excluded = excluded.into_iter().map(|one| !one).collect();
                Truth::Combination { features, excluded, width }
            }
            Truth::Null { feature, is } => Truth::Null { feature, is: !is },
            Truth::All(parts) => Truth::Any(parts.into_iter().map(Truth::negated).collect()),
            Truth::Any(parts) => Truth::All(parts.into_iter().map(Truth::negated).collect()),
        }
    }
}

/// A category's code; none for a null.
fn code(cell: Cell) -> Option<u32> {
    match cell {
        Cell::Code(code) if code != NULL_CODE => Some(code),
        _ => None,
    }
}

/// `AND` of three-valued truths: one that is false decides, else one that is unknown does.
fn all(parts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut known = true;
    for part in parts {
        match part {
            Some(false) => return Some(false),
            Some(true) => {}
            None => known = false,
        }
    }
    known.then_some(true)
}
