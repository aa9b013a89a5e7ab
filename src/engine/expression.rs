//! What an SQL text may ask of the engine before it is parsed, and what an expression may before it is
//! planned: limits of size, and functions that make much of little refused by name. Parsing and planning
//! recurse, so they have a stack of their own.

use std::future::Future;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::scan::planning;
use crate::error::{Error, Result};

/// Bytes of a text, at most: a list of ten thousand keys fits.
const MOST_BYTES: usize = 1 << 20;
/// Words and signs of a text, at most, values and commas not counted: a thousand comparisons with `OR`
/// between them. Planning takes more than twice as long for twice as many.
const MOST_WORDS: usize = 3_000;
/// Values of a text, at most.
const MOST_VALUES: usize = 50_000;
/// How many words a `WHEN` counts for, since planning takes so much longer …
const WHEN_WORDS: usize = 10;
/// … and a sign of arithmetic.
const SIGN_WORDS: usize = 4;
/// Calls within calls, at most, `NOT (…)` and `AND (…)` included: at every level of an expression that turns
/// out wrong the parser tries some of them in two ways, so that its time doubles.
const DEEPEST_CALLS: usize = 14;
/// Characters that a function may make of one, at most.
const MOST_GROWTH: u64 = 10_000;

/// Functions that make as much as they are asked for, of nothing.
const MAKERS: [&str; 8] = [
    "repeat",
    "space",
    "array_repeat",
    "list_repeat",
    "array_resize",
    "list_resize",
    "generate_series",
    "range",
];

/// Bytes of the stack that expressions are planned on. Only what is used of it takes memory.
const STACK: usize = 256 << 20;

/// Refuses a text that is too much to be planned; `subject` is the key or argument that it is from.
///
/// # Errors
/// When it is too long, has too many words or values, or calls a function that makes much of nothing.
pub(super) fn check_text(subject: &str, text: &str) -> Result<()> {
    let refused = |problem: String| Err(Error::spec(subject, problem));
    if text.len() > MOST_BYTES {
        return refused(format!("has {} bytes, expected at most {MOST_BYTES}", text.len()));
    }
    // What cannot be read as SQL at all is told by the parser.
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize() else { return Ok(()) };
    let tokens: Vec<Token> =
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let words: usize = tokens.iter().map(weight).sum();
    if words > MOST_WORDS {
        let problem = format!("has {words} words and signs, expected at most {MOST_WORDS}");
        let error = Error::spec(subject, problem);
        return Err(error.hint(
            "write `column IN (a, b, …)` for many comparisons, or give the table a column to filter by",
        ));
    }
    let deepest = nested_calls(&tokens);
    if deepest > DEEPEST_CALLS {
        return refused(format!("nests {deepest} calls, expected at most {DEEPEST_CALLS}"));
    }
    let values = tokens.iter().filter(|token| weight(token) == 0).count();
    if values > MOST_VALUES {
        let problem = format!("has {values} values and commas, expected at most {MOST_VALUES}");
        return Err(Error::spec(subject, problem)
            .hint("give the table a column to filter by, or split the job"));
    }
    for pair in tokens.windows(2) {
        if let [Token::Word(word), Token::LParen] = pair
            && MAKERS.contains(&word.value.to_lowercase().as_str())
        {
            let problem = format!(
                "calls `{}`, whose result may be of any size: it is not allowed here",
                word.value
            );
            return refused(problem);
        }
    }
    Ok(())
}

/// How deep calls stand within calls: parentheses after a word.
fn nested_calls(tokens: &[Token]) -> usize {
    let (mut open, mut depth, mut deepest) = (Vec::new(), 0, 0);
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Token::LParen => {
                let call = index > 0 && matches!(tokens[index - 1], Token::Word(_));
                open.push(call);
                depth += usize::from(call);
                deepest = deepest.max(depth);
            }
            Token::RParen => depth -= usize::from(open.pop().unwrap_or(false)),
            _ => {}
        }
    }
    deepest
}

/// What a token counts for; nothing for a value or a comma.
fn weight(token: &Token) -> usize {
    match token {
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Comma
        | Token::Period
        | Token::EOF
        | Token::SemiColon => 0,
        Token::Word(word) if word.value.eq_ignore_ascii_case("when") => WHEN_WORDS,
        Token::Plus
        | Token::Minus
        | Token::Mul
        | Token::Div
        | Token::Mod
        | Token::StringConcat
        | Token::DoubleColon
        | Token::LBracket => SIGN_WORDS,
        _ => 1,
    }
}

/// Refuses an expression that can make very long texts of short ones.
///
/// # Errors
/// When it can.
pub(super) fn check_growth(subject: &str, expression: &Expr) -> Result<()> {
    match growth(expression) {
        Ok(most) if most <= MOST_GROWTH => Ok(()),
        Ok(most) => {
            let problem = format!(
                "makes texts up to {most} times as long, expected at most {MOST_GROWTH} times"
            );
            Err(Error::spec(subject, problem))
        }
        Err(name) => {
            let problem =
                format!("calls `{name}` without a constant length of at most {MOST_GROWTH}");
            Err(Error::spec(subject, problem))
        }
    }
}

/// The same for all expressions of a query.
pub(super) fn check_plan(subject: &str, plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    let visited = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            refused = check_growth(subject, expression).err();
            Ok(match refused {
                Some(_) => TreeNodeRecursion::Stop,
                None => TreeNodeRecursion::Continue,
            })
        })
    });
    visited.map_err(planning)?;
    refused.map_or(Ok(()), Err)
}

/// How many times as long as what it is given a text can become; else the name of a function that does
/// not say.
fn growth(expression: &Expr) -> Result<u64, String> {
    let mut most: Result<u64, String> = Ok(1);
    let _ = expression.apply_children(|child| {
        let found = growth(child);
        most = match (&most, found) {
            (Ok(largest), Ok(found)) => Ok((*largest).max(found)),
            (Ok(_), Err(name)) => Err(name),
            (Err(name), _) => Err(name.clone()),
        };
        Ok(TreeNodeRecursion::Continue)
    });
    let Expr::ScalarFunction(call) = expression else { return most };
    let repeated = match call.func.name() {
        "lpad" | "rpad" => {
            let length = call.args.get(1).and_then(whole_literal);
            u64::try_from(length.ok_or_else(|| call.func.name().to_string())?).unwrap_or(0)
        }
        "replace" | "regexp_replace" => call.args.get(2).map_or(1, text_length),
        _ => 1,
    };
    most.map(|most| most.saturating_mul(repeated.max(1)))
}

fn whole_literal(argument: &Expr) -> Option<i64> {
    match argument {
        Expr::Literal(value, _) => match value.cast_to(&arrow::datatypes::DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number,
            _ => None,
        },
        _ => None,
    }
}

/// Characters of a text that is written out; the values of a column are as long as they are.
fn text_length(argument: &Expr) -> u64 {
    match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten().map_or(1, |text| text.len() as u64),
        _ => 1,
    }
}

/// Runs a future that parses or plans on a stack that it cannot exhaust within the limits.
///
/// # Errors
/// The future's own, or that there is no room for the stack.
pub(super) fn with_room<T: Send>(work: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let handle = Handle::current();
    let lacking =
        |error: std::io::Error| Error::resources("planning", "has no thread").source(error);
    block_in_place(|| {
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("planning".into()).stack_size(STACK);
            let thread = builder.spawn_scoped(scope, move || handle.block_on(work));
            let thread = thread.map_err(lacking)?;
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(Error::internal("planning", "ended in a panic")))
        })
    })
}

/// A text as messages show it: its beginning, if it is long.
pub(super) fn abridged(text: &str) -> String {
    const SHOWN: usize = 300;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<String> {
        check_text("input.where", text).err().map(|error| error.to_string())
    }

    #[test]
    fn long_lists_are_allowed_and_long_chains_are_not() {
        let list: Vec<String> = (0..20_000).map(|value| value.to_string()).collect();
        assert_eq!(refused(&format!("x IN ({})", list.join(", "))), None);
        let chain = |terms: usize| vec!["x = 1"; terms].join(" OR ");
        assert_eq!(refused(&chain(1_000)), None);
        let said = refused(&chain(5_000)).expect("too much");
        assert!(said.contains("has 14999 words and signs, expected at most 3000"), "{said}");
        assert!(refused(&"x".repeat(MOST_BYTES + 1)).expect("too long").contains("bytes"));
    }

    #[test]
    fn functions_that_make_much_of_nothing_are_refused_by_name() {
        for text in ["repeat('a', 2000000000) = x", "x = \"REPEAT\" ('a', 3)", "range(1, 9)[1] = 1"]
        {
            assert!(
                refused(text).is_some_and(|said| said.contains("is not allowed here")),
                "{text}"
            );
        }
        assert_eq!(refused("repeat = 'repeat(' AND \"range\" > 3"), None);
    }
}
