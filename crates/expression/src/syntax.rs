//! Parses text into a syntax tree and rejects unsupported syntax.
//!
//! The tree is sqlparser's. It is not kept: parsing it again when the expression is compiled for new types
//! takes microseconds. It is dropped on the same deep stack on which it was created.

use std::ops::Range;

use datafusion_sql::sqlparser::{
    ast::{
        BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Spanned,
        UnaryOperator, Value, ValueWithSpan,
    },
    dialect::GenericDialect,
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace},
};

use regex::Regex;

use crate::{
    elsewhere,
    error::{ExpressionError, offset, range, regex_reason},
    functions, slips, walk,
};

/// The most tokens in an expression. A longer expression is probably generated, and belongs in a lookup
/// table.
const MAX_TOKENS: usize = 10_000;

/// The deepest nesting, after chains of AND and OR are balanced.
const MAX_DEPTH: usize = 100;

/// The deepest nesting of calls with a syntax of their own, such as `CAST(a AS b)`. If the innermost is
/// wrong, sqlparser reads each of them a second time, as a call of a function: the time doubles with each
/// level.
const MAX_OWN_SYNTAX: usize = 12;

/// The names of these calls.
const OWN_SYNTAX: &[Keyword] = &[
    Keyword::ARRAY,
    Keyword::CAST,
    Keyword::CEIL,
    Keyword::CONVERT,
    Keyword::EXISTS,
    Keyword::EXTRACT,
    Keyword::FLOOR,
    Keyword::MAP,
    Keyword::MATCH,
    Keyword::OVERLAY,
    Keyword::POSITION,
    Keyword::SAFE_CAST,
    Keyword::STRUCT,
    Keyword::SUBSTR,
    Keyword::SUBSTRING,
    Keyword::TRIM,
    Keyword::TRY_CAST,
    Keyword::TRY_CONVERT,
];

/// Parses one expression and nothing after it. The caller must provide a deep stack.
pub(crate) fn parse(sql: &str) -> Result<Expr, ExpressionError> {
    let tokens = tokens(sql)?;
    if own_syntax(&tokens) > MAX_OWN_SYNTAX {
        let message = format!("The expression has more than {MAX_OWN_SYNTAX} nested calls such as `CAST(`.");
        return Err(ExpressionError::new(message).help("Divide it, for instance by setting a field first."));
    }
    let mut parser = Parser::new(&GenericDialect {})
        .with_recursion_limit(MAX_DEPTH)
        .with_tokens_with_locations(tokens.clone());
    let mut tree = parser.parse_expr().map_err(|error| explain(sql, &tokens, error))?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(if is_deep_chain(&tokens) { too_deep() } else { unexpected_end(sql, &tokens, &next) });
    }
    Rules { sql, depth: 0 }.visit(&mut tree)?;
    Ok(tree)
}

fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>, ExpressionError> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().map_err(|error| {
        let at = offset(sql, error.location).unwrap_or(sql.len());
        let end = sql[at..].chars().next().map_or(sql.len(), |c| at + c.len_utf8());
        let start = if at == end { sql.trim_end().len().saturating_sub(1) } else { at };
        ExpressionError::new(format!("The expression cannot be read: {}.", uncapital(&error.message)))
            .at(sql.get(start..end).map(|_| start..end))
    })?;
    let meant = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).count();
    if meant == 0 {
        return Err(ExpressionError::new("The expression is empty.")
            .help("Write a SQL expression such as `status >= 500`, or `true`."));
    }
    if meant > MAX_TOKENS {
        return Err(ExpressionError::new(format!(
            "The expression has {meant} tokens; the limit is {MAX_TOKENS}."
        )));
    }
    Ok(as_columns(tokens))
}

/// The words that SQL reserves for a user and for times. sqlparser reads them as calls without parentheses.
const CALLED_ALONE: [Keyword; 9] = [
    Keyword::CURRENT_CATALOG,
    Keyword::CURRENT_DATE,
    Keyword::CURRENT_TIME,
    Keyword::CURRENT_TIMESTAMP,
    Keyword::CURRENT_USER,
    Keyword::LOCALTIME,
    Keyword::LOCALTIMESTAMP,
    Keyword::SESSION_USER,
    Keyword::USER,
];

/// Quotes those reserved words that are columns here, such as `user`, also in `user.name`.
fn as_columns(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for token in &mut tokens {
        if let Token::Word(word) = &mut token.token
            && CALLED_ALONE.contains(&word.keyword)
            && !functions::is_known(&word.value)
        {
            word.quote_style = Some('"');
            word.keyword = Keyword::NoKeyword;
        }
    }
    tokens
}

/// Returns the deepest nesting of calls with a syntax of their own.
fn own_syntax(tokens: &[TokenWithSpan]) -> usize {
    let (mut open, mut depth, mut deepest, mut is_own) = (Vec::new(), 0, 0, false);
    for token in tokens {
        match &token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => {
                open.push(is_own);
                depth += usize::from(is_own);
                deepest = deepest.max(depth);
            }
            Token::RParen => depth -= usize::from(open.pop().unwrap_or(false)),
            _ => {}
        }
        is_own = matches!(&token.token, Token::Word(word) if OWN_SYNTAX.contains(&word.keyword));
    }
    deepest
}

/// True if more than `MAX_DEPTH` `NOT` or `CASE WHEN` follow one another. Beyond its recursion limit
/// sqlparser reads such a word as a column, and stops at the next one instead of reporting the limit.
fn is_deep_chain(tokens: &[TokenWithSpan]) -> bool {
    let mut chain = 0;
    tokens.iter().any(|token| {
        match &token.token {
            Token::Whitespace(_) => {}
            Token::Word(word) => match word.keyword {
                Keyword::NOT | Keyword::CASE => chain += 1,
                Keyword::WHEN => {}
                _ => chain = 0,
            },
            _ => chain = 0,
        }
        chain > MAX_DEPTH
    })
}

fn unexpected_end(sql: &str, tokens: &[TokenWithSpan], next: &TokenWithSpan) -> ExpressionError {
    let error = ExpressionError::new(format!(
        "`{}` is not expected here: the expression ends before it.",
        next.token
    ))
    .at(range(sql, next.span));
    if let Token::Word(word) = &next.token
        && let Some(help) = elsewhere::operator(&word.value)
    {
        return error.help(help);
    }
    match &next.token {
        Token::DoubleEq => error.help("Equality is written `=`."),
        Token::Ampersand | Token::Overlap => error.help("Conditions are joined with `AND`."),
        Token::SemiColon => error.help("Leave it out."),
        token if token.to_string() == "?" && begins_with(sql, next, "??") => {
            error.help("A value in place of NULL is written `coalesce(a, b)`.")
        }
        // A tokenizer that knows parameters of statements reads `?` as one.
        token if token.to_string() == "?" => {
            error.help("A choice is written `CASE WHEN condition THEN a ELSE b END`.")
        }
        Token::Word(word) if ["isnull", "notnull"].contains(&word.value.to_lowercase().as_str()) => {
            error.help("Write `a IS NULL` or `a IS NOT NULL`.")
        }
        Token::Word(word) if word.keyword == Keyword::WHEN => {
            error.help("Write `CASE WHEN condition THEN a ELSE b END`, with the `END`.")
        }
        Token::LParen if let Some(column) = existing(sql, next) => {
            error.help(format!("Write `{column} IS NOT NULL`."))
        }
        _ if has_keyword(tokens, Keyword::IF) && has_keyword(tokens, Keyword::THEN) => {
            error.help("A choice is written `CASE WHEN condition THEN a ELSE b END`.")
        }
        Token::Word(_) if follows_number(tokens, next) => {
            error.help("A span of time is written `INTERVAL '5 minutes'`.")
        }
        _ if first_keyword(tokens).is_some_and(|first| matches!(first, Keyword::SELECT | Keyword::WHERE)) => {
            error.help("Write only the condition or the value, such as `status >= 500`.")
        }
        _ => error.help("Join two expressions with an operator, such as `AND`."),
    }
}

/// True if a text begins at a token.
fn begins_with(sql: &str, token: &TokenWithSpan, text: &str) -> bool {
    let rest = offset(sql, token.span.start).and_then(|start| sql.get(start..));
    rest.is_some_and(|rest| rest.starts_with(text))
}

/// Returns the column of `column.exists` before a token.
fn existing<'s>(sql: &'s str, token: &TokenWithSpan) -> Option<&'s str> {
    const METHOD: &str = ".exists";
    let before = sql.get(..offset(sql, token.span.start)?)?.trim_end();
    let (column, method) = before.split_at_checked(before.len().checked_sub(METHOD.len())?)?;
    let is_other = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.'));
    let name = column.rsplit(is_other).next()?;
    (method.eq_ignore_ascii_case(METHOD) && !name.is_empty()).then_some(name)
}

fn has_keyword(tokens: &[TokenWithSpan], keyword: Keyword) -> bool {
    tokens.iter().any(|token| matches!(&token.token, Token::Word(word) if word.keyword == keyword))
}

/// True if the token before this one, with nothing between them, is a number.
fn follows_number(tokens: &[TokenWithSpan], next: &TokenWithSpan) -> bool {
    let before = tokens.iter().take_while(|token| token.span != next.span).last();
    before.is_some_and(|token| matches!(token.token, Token::Number(..)))
}

fn first_keyword(tokens: &[TokenWithSpan]) -> Option<Keyword> {
    tokens.iter().find_map(|token| match &token.token {
        Token::Word(word) => Some(word.keyword),
        _ => None,
    })
}

/// Converts an error of sqlparser, which states the position in words at the end of its message.
fn explain(sql: &str, tokens: &[TokenWithSpan], error: ParserError) -> ExpressionError {
    let text = match error {
        ParserError::RecursionLimitExceeded => return too_deep(),
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
    };
    let place = text.rsplit_once(" at Line: ").and_then(|(words, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        let place = Location::new(line.trim().parse().ok()?, column.trim().parse().ok()?);
        Some((words.to_owned(), place))
    });
    let (words, at) = match place {
        Some((words, place)) => (words, token_at(sql, tokens, place)),
        None => (text, None),
    };
    match words.strip_prefix("Expected: ").and_then(|words| words.rsplit_once(", found: ")) {
        Some((expected, "EOF")) => {
            ExpressionError::new("The expression ends too early.").help(format!("Expected {expected}."))
        }
        Some((_, "[")) if at.as_ref().is_some_and(|at| follows_in(sql, at.start)) => {
            ExpressionError::new("`[` is not expected here.").help("A list is written `a IN ('x', 'y')`.")
        }
        Some((_, found)) if found.starts_with(['\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '`']) => {
            ExpressionError::new(format!("`{found}` is not a quote of a text."))
                .help("A text is written in straight quotes, `'text'`.")
        }
        Some((_, ".")) if let Some(name) = at.as_ref().and_then(|at| name_at(sql, at.end)) => {
            ExpressionError::new("`.` is not expected here.")
                .help(format!("Write `{name}`: the name of a field has no dot before it."))
        }
        Some((_, "!")) => ExpressionError::new("Expressions have no operator `!`.").help("Write `NOT a`."),
        Some((expected, found)) => ExpressionError::new(format!("`{found}` is not expected here."))
            .help(format!("Expected {expected}.")),
        // The parser names its own token.
        None if words.contains(" for token ") => {
            ExpressionError::new("Expressions do not have this operator.")
        }
        None => ExpressionError::new(format!("The expression cannot be read: {}.", uncapital(&words))),
    }
    .at(at)
}

/// Returns the name that begins at a place.
fn name_at(sql: &str, place: usize) -> Option<&str> {
    let rest = sql.get(place..)?;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(rest.len());
    rest.get(..end).filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

/// True if the word before a place is `IN`.
fn follows_in(sql: &str, place: usize) -> bool {
    let before = sql.get(..place).unwrap_or_default().trim_end().to_lowercase();
    before.ends_with(" in") || before.ends_with(")in")
}

fn token_at(sql: &str, tokens: &[TokenWithSpan], place: Location) -> Option<Range<usize>> {
    tokens
        .iter()
        .find(|token| {
            token.span.start == place
                && !matches!(token.token, Token::Whitespace(Whitespace::Space | Whitespace::Newline))
        })
        .and_then(|token| range(sql, token.span))
}

fn too_deep() -> ExpressionError {
    ExpressionError::new(format!("The expression is nested more than {MAX_DEPTH} levels deep."))
        .help("Divide it, for instance by setting a field first.")
}

fn uncapital(text: &str) -> String {
    let mut characters = text.trim().trim_end_matches('.').chars();
    match characters.next() {
        Some(first) => first.to_lowercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// Walks the tree: balances chains, counts the depth, and rejects unsupported parts.
struct Rules<'a> {
    sql: &'a str,
    depth: usize,
}

impl Rules<'_> {
    fn visit(&mut self, expr: &mut Expr) -> Result<(), ExpressionError> {
        balance(expr);
        if self.depth == MAX_DEPTH {
            return Err(too_deep());
        }
        self.check(expr)?;
        if let Some(parts) = walk::parts(expr) {
            self.depth += 1;
            for part in parts {
                self.visit(part)?;
            }
            self.depth -= 1;
            return Ok(());
        }
        Err(ExpressionError::new(format!("`{expr}` is not supported in an expression."))
            .at(range(self.sql, expr.span())))
    }

    fn check(&self, expr: &Expr) -> Result<(), ExpressionError> {
        let at = range(self.sql, expr.span());
        match expr {
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                Err(refusal("A subquery reads a table", at))
            }
            Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => Err(refusal("`*` stands for all columns", at)),
            Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_) => {
                Err(refusal("Grouping is for aggregates", at))
            }
            Expr::Identifier(name) if name.quote_style.is_none() && name.value.starts_with('@') => {
                Err(ExpressionError::new(format!("There are no variables such as `{}`.", name.value))
                    .at(at)
                    .help("A column whose name begins with `@` is written in double quotes."))
            }
            Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) => {
                Err(ExpressionError::new(format!("There are no parameters such as `{name}`."))
                    .at(at)
                    .help("Write the value itself, or the name of a column."))
            }
            Expr::BinaryOp { left, op, right } => {
                check_null(left, op, right, at.clone())?;
                slips::check_arithmetic(self.sql, left, op, right)?;
                self.check_operator(op, right, at)
            }
            Expr::UnaryOp { op: UnaryOperator::BitwiseNot, .. } => {
                Err(ExpressionError::new("Expressions have no operator `~` before a value.")
                    .at(at)
                    .help("A text is compared with a regular expression by `a ~ 'expression'`."))
            }
            Expr::Lambda(_) => Err(ExpressionError::new("There are no lambda functions.").at(at)),
            Expr::Function(function) => self.check_call(function),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                self.check_distinct(left, right)
            }
            _ => Ok(()),
        }
    }

    fn check_operator(
        &self,
        op: &BinaryOperator,
        right: &Expr,
        at: Option<Range<usize>>,
    ) -> Result<(), ExpressionError> {
        let missing = |help: &str| {
            Err(ExpressionError::new(format!("Expressions have no operator `{op}`.")).at(at).help(help))
        };
        match op {
            BinaryOperator::PGOverlap => missing("Conditions are joined with `AND`."),
            BinaryOperator::Arrow
            | BinaryOperator::LongArrow
            | BinaryOperator::HashArrow
            | BinaryOperator::HashLongArrow => {
                missing("A part of JSON is written `a.b`, `a[0]`, or `json_get(a, 'b')`.")
            }
            BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch => self.check_pattern(right),
            _ => Ok(()),
        }
    }

    /// Checks a regular expression that is written in the expression.
    fn check_pattern(&self, pattern: &Expr) -> Result<(), ExpressionError> {
        let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = pattern else {
            return Ok(());
        };
        Regex::new(text).map(drop).map_err(|error| {
            let error = error.to_string();
            let reason = regex_reason(&error);
            ExpressionError::new(format!("`{text}` is not a regular expression: {reason}."))
                .at(range(self.sql, pattern.span()))
        })
    }

    /// The parser takes everything after `IS DISTINCT FROM` for its right side: `a IS DISTINCT FROM b AND c`
    /// would be `a IS DISTINCT FROM (b AND c)`. In SQL it binds more tightly.
    fn check_distinct(&self, left: &Expr, right: &Expr) -> Result<(), ExpressionError> {
        let takes_too_much = match right {
            Expr::BinaryOp { op, .. } => matches!(
                op,
                BinaryOperator::And
                    | BinaryOperator::Or
                    | BinaryOperator::Xor
                    | BinaryOperator::Eq
                    | BinaryOperator::NotEq
                    | BinaryOperator::Lt
                    | BinaryOperator::LtEq
                    | BinaryOperator::Gt
                    | BinaryOperator::GtEq
            ),
            Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) | Expr::IsNull(_) | Expr::IsNotNull(_) => {
                true
            }
            _ => false,
        };
        if !takes_too_much {
            return Ok(());
        }
        Err(ExpressionError::new("`IS DISTINCT FROM` needs parentheses here.")
            .at(range(self.sql, right.span()))
            .help(format!("Write for example `({left} IS DISTINCT FROM …) AND …`.")))
    }

    fn check_call(&self, function: &Function) -> Result<(), ExpressionError> {
        let at = range(self.sql, function.name.span());
        if function.over.is_some() {
            return Err(refusal("`OVER` makes a window over many messages", at));
        }
        let list = match &function.args {
            FunctionArguments::List(list) => list,
            FunctionArguments::Subquery(_) => return Err(refusal("A subquery reads a table", at)),
            // Without parentheses it is `current_date`.
            FunctionArguments::None => return Ok(()),
        };
        if list.duplicate_treatment.is_some()
            || !list.clauses.is_empty()
            || function.filter.is_some()
            || !function.within_group.is_empty()
            || function.null_treatment.is_some()
        {
            return Err(refusal("Such a clause belongs to an aggregate", at));
        }
        let name = function.name.to_string();
        let star = |argument: &FunctionArg| match argument {
            FunctionArg::Unnamed(argument)
            | FunctionArg::Named { arg: argument, .. }
            | FunctionArg::ExprNamed { arg: argument, .. } => !matches!(argument, FunctionArgExpr::Expr(_)),
        };
        if !functions::is_aggregate(&name) && list.args.iter().any(star) {
            return Err(refusal("`*` stands for all columns", at));
        }
        functions::check_call(&name, list.args.len()).map_err(|error| error.at(at))?;
        slips::check_format(self.sql, function)?;
        match list.args.get(1) {
            Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(pattern)))
                if name.to_lowercase().starts_with("regexp_") =>
            {
                self.check_pattern(pattern)
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a comparison with NULL, which is never true.
fn check_null(
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
    at: Option<Range<usize>>,
) -> Result<(), ExpressionError> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let is_null = |side: &Expr| matches!(side, Expr::Value(value) if value.value == Value::Null);
    let other = match (is_null(left), is_null(right)) {
        (false, false) => return Ok(()),
        (true, _) => right,
        (false, true) => left,
    };
    if !matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
        return Ok(());
    }
    let is = if *op == NotEq { "IS NOT NULL" } else { "IS NULL" };
    Err(ExpressionError::new("A comparison with NULL is never true.")
        .at(at)
        .help(format!("Write `{other} {is}`.")))
}

fn refusal(what: &str, at: Option<Range<usize>>) -> ExpressionError {
    ExpressionError::new(format!("{what}, and an expression looks at one message at a time.")).at(at)
}

/// A chain of at least this many conditions becomes a tree of logarithmic depth.
const CHAIN: usize = 16;

/// Balances a chain of conditions. `a OR b OR c ...` is parsed into a tree as deep as the chain is long. Both
/// operators are associative, even with NULL, so a balanced tree has the same value. It allows chains of
/// thousands of conditions.
fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { op, .. } = expr else { return };
    if !matches!(op, BinaryOperator::And | BinaryOperator::Or) {
        return;
    }
    let operator = op.clone();
    let same = |expr: &Expr| matches!(expr, Expr::BinaryOp { op, .. } if *op == operator);
    let mut links = 0;
    let mut at = &*expr;
    while let Expr::BinaryOp { left, .. } = at
        && same(at)
    {
        links += 1;
        at = left;
    }
    if links < CHAIN {
        return;
    }
    let nothing = || Expr::Value(Value::Null.with_empty_span());
    let mut pending = vec![std::mem::replace(expr, nothing())];
    let mut leaves = Vec::with_capacity(links + 1);
    while let Some(next) = pending.pop() {
        match next {
            Expr::BinaryOp { left, op, right } if op == operator => {
                pending.push(*right);
                pending.push(*left);
            }
            leaf => leaves.push(leaf),
        }
    }
    while leaves.len() > 1 {
        let mut pairs = Vec::with_capacity(leaves.len().div_ceil(2));
        let mut each = leaves.into_iter();
        while let Some(left) = each.next() {
            pairs.push(match each.next() {
                Some(right) => {
                    Expr::BinaryOp { left: Box::new(left), op: operator.clone(), right: Box::new(right) }
                }
                None => left,
            });
        }
        leaves = pairs;
    }
    if let Some(root) = leaves.pop() {
        *expr = root;
    }
}

#[cfg(test)]
mod tests {
    use super::too_deep;
    use crate::{ExpressionError, check};

    /// Returns the mistake, and the text that it points at.
    fn mistake(sql: &str) -> (String, Option<&str>) {
        let ExpressionError { range, message, help } = check(sql).unwrap_err();
        let whole = help.map_or(message.clone(), |help| format!("{message} {help}"));
        (whole, range.map(|range| &sql[range]))
    }

    #[test]
    fn what_other_languages_write_is_met_with_what_is_written_here() {
        for (sql, at, help) in [
            ("a > 1 && b > 2", "&&", "Conditions are joined with `AND`."),
            ("!a", "!", "Write `NOT a`."),
            ("a =~ 'x'", "'x'", "A text is compared with a regular expression by `a ~ 'expression'`."),
            ("u ->> 'n' = 'x'", "->>", "A part of JSON is written `a.b`, `a[0]`, or `json_get(a, 'b')`."),
            ("a > 1;", ";", "Leave it out."),
            ("a > 1 ? b : c", "?", "A choice is written `CASE WHEN condition THEN a ELSE b END`."),
            ("where a > 1", "a", "Write only the condition or the value, such as `status >= 500`."),
            ("now() - t > 5m", "m", "A span of time is written `INTERVAL '5 minutes'`."),
            ("a != null", "a != null", "Write `a IS NOT NULL`."),
            ("null = a OR b", "null = a", "Write `a IS NULL`."),
            ("level eq 'x'", "eq", "Equality is written `=`."),
            ("level contains 'x'", "contains", "Write `a LIKE '%text%'`, or `strpos(a, 'text') > 0`."),
            ("level in ['a', 'b']", "[", "A list is written `a IN ('x', 'y')`."),
            ("level = \u{201c}a\u{201d}", "\u{201c}", "A text is written in straight quotes, `'text'`."),
            ("level.upper() = 'A'", "level.upper", "Write `upper(level)`."),
            ("count(*) > 5", "count", "The transform `aggregate` has functions over several messages."),
            ("a ?? 1 > 2", "?", "A value in place of NULL is written `coalesce(a, b)`."),
            (".a * 2", ".", "Write `a`: the name of a field has no dot before it."),
            ("select(.a.b > 1)", ".", "Write `a.b`: the name of a field has no dot before it."),
            (
                "if a > 1 then 2 else 3 end",
                "a",
                "A choice is written `CASE WHEN condition THEN a ELSE b END`.",
            ),
            ("x = 1 AND s.exists()", "(", "Write `s IS NOT NULL`."),
            (
                "datediff(a, b) > 1",
                "datediff",
                "Write `(CAST(b AS BIGINT) - CAST(a AS BIGINT)) / 1e6` for seconds, or compare `b - a` with `INTERVAL '1 day'`.",
            ),
            ("regex_match(a, 'x')", "regex_match", "Use `regexp_like`, or write `a ~ 'expression'`."),
            ("a isnull", "isnull", "Write `a IS NULL` or `a IS NOT NULL`."),
        ] {
            let (message, place) = mistake(sql);
            assert!(message.ends_with(help), "{sql}: {message}");
            assert!(place.is_none_or(|place| place.contains(at)), "{sql}: {place:?}");
        }
    }

    #[test]
    fn a_wrong_regular_expression_is_a_mistake_before_a_run() {
        for sql in
            ["payload ~ '('", "NOT payload !~* '('", "regexp_like(b, '(')", "regexp_replace(b, '(', '')"]
        {
            let (message, place) = mistake(sql);
            assert_eq!(message, "`(` is not a regular expression: unclosed group.", "{sql}");
            assert_eq!(place, Some("'('"), "{sql}");
        }
        check("payload ~ b AND regexp_like(a, '(x)') AND regexp_count(a, b) > 1").unwrap();
    }

    #[test]
    fn what_the_parser_reads_beyond_is_distinct_from_is_a_mistake() {
        for sql in [
            "a IS DISTINCT FROM b AND c",
            "NOT a IS NOT DISTINCT FROM 1 OR x = 2",
            "a IS DISTINCT FROM b = c",
        ] {
            assert!(mistake(sql).0.starts_with("`IS DISTINCT FROM` needs parentheses here."), "{sql}");
        }
        assert_eq!(
            mistake("status IS DISTINCT FROM 200 AND ok").0,
            "`IS DISTINCT FROM` needs parentheses here. Write for example `(status IS DISTINCT FROM …) AND …`."
        );
        for sql in [
            "ok AND a IS DISTINCT FROM b",
            "(a IS DISTINCT FROM b) AND c",
            "a IS DISTINCT FROM (b AND c)",
            "a IS DISTINCT FROM b + 1",
        ] {
            assert_eq!(check(sql), Ok(()), "{sql}");
        }
    }

    #[test]
    fn a_mistake_is_shown_with_its_place() {
        let (message, place) = mistake("status >= >= 500");
        assert_eq!(place, Some(">="));
        assert!(message.starts_with("`>=` is not expected here. Expected"), "{message}");

        let (message, place) = mistake("status = 1 status");
        assert_eq!(place, Some("status"));
        assert_eq!(
            message,
            "`status` is not expected here: the expression ends before it. Join two expressions with an operator, such as `AND`."
        );

        let (message, place) = mistake("n = 1 AND\n  'é' = uper(x)");
        assert_eq!(
            (message.as_str(), place),
            ("There is no function `uper`. Did you mean `upper`?", Some("uper"))
        );

        let (message, place) = mistake("n > 1 AND upper(a, b) = 'A'");
        assert_eq!(place, Some("upper"));
        assert!(message.starts_with("`upper` takes 1 argument, and 2 are given."), "{message}");

        let (message, place) = mistake("n # 1");
        assert_eq!((message.as_str(), place), ("Expressions do not have this operator.", Some("#")));

        let (message, place) = mistake("level = 'error");
        assert_eq!(place, Some("'"));
        assert_eq!(message, "The expression cannot be read: unterminated string literal.");

        let (message, place) = mistake("n = (1");
        assert!(message.starts_with("The expression ends too early."), "{message}");
        assert_eq!(place, None);

        assert!(mistake("").0.starts_with("The expression is empty."));
        assert!(mistake(" -- only a comment").0.starts_with("The expression is empty."));
        assert_eq!(
            mistake("n == 1 === 2"),
            ("`=` is not expected here. Expected an expression.".to_owned(), Some("="))
        );
    }

    #[test]
    fn the_smallest_part_that_has_no_meaning_is_pointed_at() {
        let (message, place) = mistake("n = 1 AND (true + INTERVAL '1 day') IS NULL");
        let expected = "`true + INTERVAL '1 day'` cannot be evaluated: `+` does not take values of the types \
                        boolean and interval.";
        assert_eq!((message.as_str(), place), (expected, Some("true + INTERVAL '1 day'")));
    }

    #[test]
    fn what_needs_more_than_one_message_is_refused() {
        for (sql, place) in [
            ("count(*) > 1", Some("count")),
            ("sum(n)", Some("sum")),
            ("row_number() OVER (ORDER BY n)", Some("row_number")),
            ("n IN (SELECT 1)", None),
            ("EXISTS (SELECT 1)", None),
            ("(SELECT 1) = 1", None),
            ("upper(DISTINCT n)", Some("upper")),
        ] {
            let (message, at) = mistake(sql);
            assert!(message.contains("one message at a time"), "{sql}: {message}");
            if place.is_some() {
                assert_eq!(at, place, "{sql}");
            }
        }
        assert_eq!(
            mistake("max(a, b)").0.rsplit_once(". ").unwrap().1,
            "The greatest of several values is `greatest(a, b)`."
        );
        assert_eq!(mistake("n > $1").1, Some("$1"));
        assert_eq!(mistake("*"), ("`*` is not expected here. Expected an expression.".to_owned(), Some("*")));
        assert!(mistake("@x > 1").0.starts_with("There are no variables such as `@x`."));
    }

    #[test]
    fn nesting_is_bounded() {
        for (open, close) in [
            ("(", ")"),
            ("NOT ", ""),
            ("- ", ""),
            ("abs(", ")"),
            ("CASE WHEN ", " THEN 1 END"),
            ("[", "]"),
            ("a.", ""),
            ("INTERVAL ", ""),
        ] {
            let long = format!("{}n{}", open.repeat(10_000), close.repeat(10_000));
            let (message, _) = mistake(&long);
            assert!(message.ends_with(" tokens; the limit is 10000."), "{open}: {message}");
            let deep = format!("{}n{}", open.repeat(1_500), close.repeat(1_500));
            assert_eq!(mistake(&deep).0, too_deep().to_string(), "{open}");
            let fewer = format!("{}n{}", open.repeat(60), close.repeat(60));
            let _ = check(&fewer);
        }
        let casts = format!("{}n AS", "CAST(".repeat(60));
        assert_eq!(
            mistake(&casts).0,
            "The expression has more than 12 nested calls such as `CAST(`. Divide it, for instance by setting a field first."
        );
        let sum = vec!["1"; 4_000].join(" + ");
        assert_eq!(
            mistake(&sum).0,
            "The expression is nested more than 100 levels deep. Divide it, for instance by setting a field first."
        );
    }
}
