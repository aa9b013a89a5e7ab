//! From SQL to predicates and numbers over features. Only what can be evaluated on single rows without an engine:
//! features, literals, arithmetic, `ROUND`, comparisons, `IN`, `BETWEEN`, `IS NULL`, `AND`, `OR`, `NOT`.

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator,
    Value,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::{ArithmeticOperator, ComparisonOperator, NumberExpression, RuleFault, Truth};
use crate::document::did_you_mean;
use crate::feature::schema::{Categorical, Feature, FeatureKind};

/// Bytes of a text, at most.
const MOST_BYTES: usize = 10_000;
/// Parentheses within parentheses, at most: the parser tries some of them in two ways, so its time can double
/// with every level.
const DEEPEST: usize = 14;
/// Decimals that a number can be rounded to, at most.
const MOST_DECIMALS: f64 = 12.0;
/// What a text may be made of, for hints.
const ALLOWED: &str = "use features, numbers, 'texts', + - * /, ROUND, comparisons, IN, BETWEEN, IS NULL, AND, OR and NOT";

/// A literal of a text.
enum RuleLiteral {
    Number(f64),
    Text(String),
}

/// Parses a predicate.
pub(super) fn truth(text: &str, features: &[Feature]) -> Result<Truth, RuleFault> {
    FeatureNames(features).truth(&expression(text)?)
}

/// Parses a number.
pub(super) fn number(text: &str, features: &[Feature]) -> Result<NumberExpression, RuleFault> {
    FeatureNames(features).number(&expression(text)?)
}

fn expression(text: &str) -> Result<Expr, RuleFault> {
    if text.trim().is_empty() {
        return Err(RuleFault::new("is empty, expected an SQL expression over features"));
    }
    if text.len() > MOST_BYTES {
        let what = format!("has {} bytes, expected at most {MOST_BYTES}", text.len());
        return Err(RuleFault::new(what).hint("write several rules: all of them must hold"));
    }
    let deepest = depth(text);
    if deepest > DEEPEST {
        let what = format!("nests {deepest} parentheses, expected at most {DEEPEST}");
        return Err(RuleFault::new(what).hint("write several rules: all of them must hold"));
    }
    let wrong = |error: sqlparser::parser::ParserError| {
        RuleFault::new(format!("is not an SQL expression: {error}"))
    };
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).map_err(wrong)?;
    let parsed = parser.parse_expr().map_err(wrong)?;
    parser.expect_token(&Token::EOF).map_err(wrong)?;
    Ok(parsed)
}

fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The features that a text may name.
struct FeatureNames<'a>(&'a [Feature]);

impl FeatureNames<'_> {
    fn truth(&self, expr: &Expr) -> Result<Truth, RuleFault> {
        match expr {
            Expr::Nested(inner) => self.truth(inner),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => Ok(self.truth(expr)?.negated()),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                Ok(Truth::All(vec![self.truth(left)?, self.truth(right)?]))
            }
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
                Ok(Truth::Any(vec![self.truth(left)?, self.truth(right)?]))
            }
            Expr::BinaryOp { left, op, right } => match comparison(op) {
                Some(comparison) => self.compare(comparison, left, right),
                None => Err(unusable(expr, "a predicate")),
            },
            Expr::Between { expr, negated, low, high } => {
                let within = Truth::All(vec![
                    self.compare(ComparisonOperator::GreaterOrEqual, expr, low)?,
                    self.compare(ComparisonOperator::LessOrEqual, expr, high)?,
                ]);
                Ok(if *negated { within.negated() } else { within })
            }
            Expr::InList { expr, list, negated } => {
                let one = |item: &Expr| self.compare(ComparisonOperator::Equal, expr, item);
                let any = Truth::Any(list.iter().map(one).collect::<Result<_, _>>()?);
                Ok(if *negated { any.negated() } else { any })
            }
            Expr::IsNull(inner) => Ok(Truth::Null { feature: self.feature(inner)?, is: true }),
            Expr::IsNotNull(inner) => Ok(Truth::Null { feature: self.feature(inner)?, is: false }),
            _ => Err(unusable(expr, "a predicate")),
        }
    }

    fn number(&self, expr: &Expr) -> Result<NumberExpression, RuleFault> {
        match expr {
            Expr::Nested(inner) => self.number(inner),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => Ok(NumberExpression::Computed(
                ArithmeticOperator::Subtract,
                Box::new(NumberExpression::Literal(0.0)),
                Box::new(self.number(expr)?),
            )),
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => self.number(expr),
            Expr::Function(function) => self.rounded(function, expr),
            Expr::BinaryOp { left, op, right } => {
                let operator = operator(op).ok_or_else(|| unusable(expr, "a number"))?;
                let (left, right) = (self.number(left)?, self.number(right)?);
                Ok(NumberExpression::Computed(operator, Box::new(left), Box::new(right)))
            }
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                let feature = self.feature(expr)?;
                match self.0[feature].kind {
                    FeatureKind::Numeric(_) => Ok(NumberExpression::Feature(feature)),
                    FeatureKind::Categorical(_) => Err(RuleFault::new(format!(
                        "takes `{}` for a number, but the feature is categorical",
                        self.0[feature].name
                    ))
                    .hint("compare it with its values: `feature = 'value'` or `feature IN (…)`")),
                }
            }
            _ => match literal(expr)? {
                RuleLiteral::Number(number) => Ok(NumberExpression::Literal(number)),
                RuleLiteral::Text(text) => {
                    Err(RuleFault::new(format!("has the text '{text}' where a number is expected")))
                }
            },
        }
    }

    /// `ROUND(number)` or `ROUND(number, decimals)`.
    fn rounded(&self, function: &Function, expr: &Expr) -> Result<NumberExpression, RuleFault> {
        let FunctionArguments::List(given) = &function.args else {
            return Err(unusable(expr, "a number"));
        };
        let plain = |arg: &FunctionArg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        };
        let args: Option<Vec<Expr>> = given.args.iter().map(plain).collect();
        let is_round = function.name.to_string().eq_ignore_ascii_case("round");
        let (number, decimals) = match args.as_deref() {
            Some([number]) if is_round => (number, 0.0),
            Some([number, decimals]) if is_round => match literal(decimals)? {
                RuleLiteral::Number(decimals) => (number, decimals),
                RuleLiteral::Text(_) => return Err(unusable(expr, "a number")),
            },
            _ => return Err(unusable(expr, "a number")),
        };
        if decimals.fract() != 0.0 || !(0.0..=MOST_DECIMALS).contains(&decimals) {
            let what = format!("rounds to {decimals} decimals, expected 0 to {MOST_DECIMALS}");
            return Err(RuleFault::new(what));
        }
        Ok(NumberExpression::Rounded(Box::new(self.number(number)?), decimals as u8))
    }

    fn compare(
        &self,
        comparison: ComparisonOperator,
        left: &Expr,
        right: &Expr,
    ) -> Result<Truth, RuleFault> {
        match (self.category(left)?, self.category(right)?) {
            (None, None) => Ok(Truth::Compare(comparison, self.number(left)?, self.number(right)?)),
            (Some(one), Some(two)) => self.same_text(comparison, one, two),
            (Some(feature), None) => self.one_of(comparison, feature, right),
            (None, Some(feature)) => self.one_of(comparison, feature, left),
        }
    }

    /// A categorical feature compared with a literal.
    fn one_of(
        &self,
        comparison: ComparisonOperator,
        index: usize,
        expr: &Expr,
    ) -> Result<Truth, RuleFault> {
        let (name, categorical) = self.categorical(index);
        let is_equal = equality(comparison, name)?;
        let value = match literal(expr)? {
            RuleLiteral::Number(number) => number.to_string(),
            RuleLiteral::Text(text) => text,
        };
        if !categorical.values.contains(&value) {
            let what = format!("compares `{name}` with '{value}', which is not one of its values");
            let problem = RuleFault::new(what);
            let known = categorical.values.iter().map(String::as_str);
            return Err(match did_you_mean(&value, known) {
                Some(hint) => problem.hint(hint),
                None => problem,
            });
        }
        let codes = categorical.values.iter().map(|known| *known == value).collect();
        let equal = Truth::OneOf { feature: index, codes, unseen: false };
        Ok(if is_equal { equal } else { equal.negated() })
    }

    fn same_text(
        &self,
        comparison: ComparisonOperator,
        one: usize,
        two: usize,
    ) -> Result<Truth, RuleFault> {
        let (name, left) = self.categorical(one);
        let same = equality(comparison, name)?;
        let (_, right) = self.categorical(two);
        let code = |value: &String| right.values.iter().position(|known| known == value);
        let codes = left.values.iter().map(|value| code(value).map(|code| code as u32)).collect();
        Ok(Truth::SameText { left: one, right: two, codes, same })
    }

    fn categorical(&self, index: usize) -> (&str, &Categorical) {
        let feature = &self.0[index];
        (&feature.name, feature.categorical().expect("looked up as categorical"))
    }

    /// The categorical feature that an expression is; none if it is something else.
    fn category(&self, expr: &Expr) -> Result<Option<usize>, RuleFault> {
        match expr {
            Expr::Nested(inner) => self.category(inner),
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                let feature = self.feature(expr)?;
                Ok(self.0[feature].categorical().map(|_| feature))
            }
            _ => Ok(None),
        }
    }

    /// The feature that an expression names.
    fn feature(&self, expr: &Expr) -> Result<usize, RuleFault> {
        let name = match expr {
            Expr::Nested(inner) => return self.feature(inner),
            Expr::Identifier(name) => name.value.clone(),
            Expr::CompoundIdentifier(parts) => {
                let parts: Vec<&str> = parts.iter().map(|part| part.value.as_str()).collect();
                parts.join(".")
            }
            _ => return Err(unusable(expr, "a feature")),
        };
        let found = self.0.iter().position(|feature| feature.name == name);
        found.ok_or_else(|| {
            let problem = RuleFault::new(format!("names `{name}`, which is not a feature"));
            let names = self.0.iter().map(|feature| feature.name.as_str());
            match did_you_mean(&name, names) {
                Some(hint) => problem.hint(hint),
                None => problem.hint("texts are written in single quotes: 'text'"),
            }
        })
    }
}

/// Whether a comparison of categories is for equality.
fn equality(comparison: ComparisonOperator, name: &str) -> Result<bool, RuleFault> {
    match comparison {
        ComparisonOperator::Equal => Ok(true),
        ComparisonOperator::NotEqual => Ok(false),
        _ => Err(RuleFault::new(format!("compares the categorical feature `{name}` by size"))
            .hint("list the values: `feature IN (…)`")),
    }
}

fn comparison(op: &BinaryOperator) -> Option<ComparisonOperator> {
    Some(match op {
        BinaryOperator::Lt => ComparisonOperator::Less,
        BinaryOperator::LtEq => ComparisonOperator::LessOrEqual,
        BinaryOperator::Gt => ComparisonOperator::Greater,
        BinaryOperator::GtEq => ComparisonOperator::GreaterOrEqual,
        BinaryOperator::Eq => ComparisonOperator::Equal,
        BinaryOperator::NotEq => ComparisonOperator::NotEqual,
        _ => return None,
    })
}

fn operator(op: &BinaryOperator) -> Option<ArithmeticOperator> {
    Some(match op {
        BinaryOperator::Plus => ArithmeticOperator::Add,
        BinaryOperator::Minus => ArithmeticOperator::Subtract,
        BinaryOperator::Multiply => ArithmeticOperator::Multiply,
        BinaryOperator::Divide => ArithmeticOperator::Divide,
        _ => return None,
    })
}

fn literal(expr: &Expr) -> Result<RuleLiteral, RuleFault> {
    match expr {
        Expr::Nested(inner) => literal(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match literal(expr)? {
            RuleLiteral::Number(number) => Ok(RuleLiteral::Number(-number)),
            RuleLiteral::Text(_) => Err(unusable(expr, "a number")),
        },
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => match digits.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(RuleLiteral::Number(number)),
                _ => Err(RuleFault::new(format!("has the number {digits}, which is not finite"))),
            },
            Value::SingleQuotedString(text) => Ok(RuleLiteral::Text(text.clone())),
            Value::Boolean(value) => Ok(RuleLiteral::Text(value.to_string())),
            _ => Err(unusable(expr, "a literal")),
        },
        _ => Err(unusable(expr, "a literal")),
    }
}

fn unusable(expr: &Expr, expected: &str) -> RuleFault {
    RuleFault::new(format!("has `{expr}`, expected {expected}")).hint(ALLOWED)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::feature::{Cell, FeatureSchema, NULL_CODE};

    const SCHEMA: &str = r#"
        [[feature]]
        name = "late"
        kind = "numeric"
        [[feature]]
        name = "total"
        kind = "numeric"
        [[feature]]
        name = "work"
        kind = "categorical"
        values = ["student", "clerk"]
        [[feature]]
        name = "level"
        kind = "categorical"
        values = [1, 2, 3]
    "#;

    fn features() -> Vec<Feature> {
        FeatureSchema::parse(SCHEMA, Path::new("f.toml")).expect("a good schema").features
    }

    /// What a predicate says of a row; NaN and 9 are nulls.
    fn holds(text: &str, late: f64, total: f64, work: u32, level: u32) -> Option<bool> {
        let code = |code: u32| Cell::Code(if code == 9 { NULL_CODE } else { code });
        let row = [Cell::Number(late), Cell::Number(total), code(work), code(level)];
        truth(text, &features()).expect("a good text").holds(&|feature: usize| row[feature])
    }

    #[test]
    fn predicates_say_what_sql_says() {
        let nan = f64::NAN;
        for (text, row, expected) in [
            ("late <= total", (1.0, 2.0, 0, 0), Some(true)),
            ("late <= total", (3.0, 2.0, 0, 0), Some(false)),
            ("late <= total", (nan, 2.0, 0, 0), None),
            ("late / total < 0.5", (1.0, 0.0, 0, 0), None),
            ("late - 2 * total = -3", (1.0, 2.0, 0, 0), Some(true)),
            ("work <> 'student' OR late < 20", (30.0, 0.0, 0, 0), Some(false)),
            ("work <> 'student' OR late < 20", (30.0, 0.0, 1, 0), Some(true)),
            ("work <> 'student' OR late < 20", (30.0, 0.0, 9, 0), None),
            ("NOT (work = 'student' AND late >= 20)", (30.0, 0.0, 0, 0), Some(false)),
            ("level IN (1, 3)", (0.0, 0.0, 0, 2), Some(true)),
            ("level NOT IN (1, 3)", (0.0, 0.0, 0, 2), Some(false)),
            ("late BETWEEN 1 AND 3", (3.0, 0.0, 0, 0), Some(true)),
            ("late NOT BETWEEN 1 AND 3", (3.0, 0.0, 0, 0), Some(false)),
            ("late IS NULL OR work IS NOT NULL", (1.0, 0.0, 9, 0), Some(false)),
            ("late IS NULL", (nan, 0.0, 0, 0), Some(true)),
            ("level = work", (0.0, 0.0, 0, 0), Some(false)),
        ] {
            let (late, total, work, level) = row;
            assert_eq!(holds(text, late, total, work, level), expected, "{text} of {row:?}");
        }
    }

    #[test]
    fn texts_that_cannot_be_used_are_told_with_a_hint() {
        for (text, what, hint) in [
            ("late <= totall", "names `totall`, which is not a feature", "did you mean `total`?"),
            ("work = 'studnt'", "which is not one of its values", "did you mean `student`?"),
            ("work < 'clerk'", "by size", "list the values"),
            ("abs(late) < 3", "has `abs(late)`, expected a number", "use features"),
            ("round(late, 1.5) < 3", "rounds to 1.5 decimals, expected 0 to 12", ""),
            ("round(late, -1) < 3", "rounds to -1 decimals", ""),
            ("late", "has `late`, expected a predicate", "use features"),
            ("work + 1 > 2", "takes `work` for a number", "compare it with its values"),
            ("late <=", "is not an SQL expression", ""),
            ("late <= total total", "is not an SQL expression", ""),
            (" ", "is empty", ""),
            ("((((((((((((((( late ))))))))))))))) < 1", "nests 15 parentheses", "several rules"),
        ] {
            let problem = truth(text, &features()).expect_err(text);
            assert!(problem.what.contains(what), "{text}: {problem:?}");
            assert!(problem.hint.unwrap_or_default().contains(hint), "{text}");
        }
    }
}
