//! The instructions of a template, with a bound for each value that they make.
//!
//! The library bounds the number of instructions, not what they make: twenty rounds of `x ~ x` make a million
//! bytes of one, and `[0] * n` is as long as the message says. The operators cannot be replaced in an
//! environment, as filters can. So the compiled instructions are copied with calls of filters around those
//! that make values. (Rejected: parsing the template here, to write calls in place of operators. It would be
//! a second parser of the same language.)
//!
//! The library says that its instructions may change in any version. `Cargo.toml` therefore names one version
//! exactly, and the tests of this folder show whether the next one still works.

use std::collections::{BTreeMap, HashSet};

use minijinja::machinery::{CompiledTemplate, Instruction, Instructions, eval, make_string_output};
use minijinja::{AutoEscape, Environment, Error, Value};

use super::bounds;

/// No place among the filters that a template keeps at hand.
const NO_LOCAL: u8 = !0;

/// A template that can be rendered.
pub(super) struct Program<'e> {
    instructions: Instructions<'e>,
    blocks: BTreeMap<&'e str, Instructions<'e>>,
    auto_escape: AutoEscape,
}

impl<'e> Program<'e> {
    /// Copies the instructions of a template, with their bounds.
    pub(super) fn new(template: &CompiledTemplate<'e>) -> Self {
        let from = &template.instructions;
        let groups: Vec<Vec<Instruction<'e>>> =
            (0..).map_while(|at| from.get(at)).map(|instruction| bounded(instruction.clone())).collect();
        // Instruction `n` begins where those before it end.
        let mut starts = vec![0];
        starts.extend(groups.iter().scan(0, |end, group| {
            *end += group.len() as u32;
            Some(*end)
        }));
        let mut instructions = Instructions::new(from.name(), from.source());
        for (at, group) in (0..).zip(groups) {
            let line = from.get_line(at);
            for mut instruction in group {
                retarget(&mut instruction, &starts);
                match line {
                    Some(line) => instructions.add_with_line(instruction, line as u16),
                    None => instructions.add(instruction),
                };
            }
        }
        Self { instructions, blocks: BTreeMap::new(), auto_escape: template.initial_auto_escape.clone() }
    }

    /// Appends the text for a message.
    pub(super) fn render(
        &self,
        environment: &'e Environment<'e>,
        message: Value,
        text: &mut String,
    ) -> Result<(), Error> {
        let mut out = make_string_output(text);
        eval(environment, &self.instructions, message, &self.blocks, &mut out, self.auto_escape.clone())?;
        Ok(())
    }
}

/// Returns the names that a template looks up. (The library's `undeclared_variables` misses those in slices.)
pub(super) fn names(template: &CompiledTemplate<'_>) -> HashSet<String> {
    let instructions = (0..).map_while(|at| template.instructions.get(at));
    let name = |instruction: &Instruction<'_>| match instruction {
        Instruction::Lookup(name) | Instruction::CallFunction(name, _) => Some((*name).to_owned()),
        _ => None,
    };
    instructions.filter_map(name).collect()
}

/// Returns an instruction with the calls that bound what it makes.
fn bounded(instruction: Instruction<'_>) -> Vec<Instruction<'_>> {
    let call = |filter| Instruction::ApplyFilter(filter, Some(1), NO_LOCAL);
    // Passes the two operands to a filter, and puts them back in their order.
    let operands = |filter| {
        [Instruction::BuildTuple(Some(2)), call(filter), Instruction::UnpackList(2), Instruction::Swap]
    };
    match instruction {
        // Texts of the template are counted as values are.
        Instruction::EmitRaw(text) => vec![Instruction::LoadConst(Value::from(text)), Instruction::Emit],
        Instruction::StringConcat => {
            operands(bounds::BOTH_TEXTS).into_iter().chain([Instruction::StringConcat]).collect()
        }
        Instruction::Mul => {
            operands(bounds::FACTORS).into_iter().chain([Instruction::Mul, call(bounds::MADE)]).collect()
        }
        Instruction::Add | Instruction::Slice => vec![instruction, call(bounds::MADE)],
        Instruction::BuildList(_) | Instruction::BuildTuple(_) | Instruction::BuildMap(_) => {
            vec![instruction, call(bounds::NESTED)]
        }
        // `in` makes a text of the value that it searches for.
        Instruction::In | Instruction::CompareAndPreserve(_) => {
            vec![Instruction::Swap, call(bounds::TEXT), Instruction::Swap, instruction]
        }
        other => vec![other],
    }
}

/// Changes the target of a jump to where that instruction is now.
fn retarget(instruction: &mut Instruction<'_>, starts: &[u32]) {
    let (Instruction::Jump(target)
    | Instruction::JumpIfFalse(target)
    | Instruction::JumpIfFalseOrPop(target)
    | Instruction::JumpIfTrueOrPop(target)
    | Instruction::Iterate(target)) = instruction
    else {
        return;
    };
    if let Some(start) = starts.get(*target as usize) {
        *target = *start;
    }
}
