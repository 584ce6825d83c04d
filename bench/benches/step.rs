//! `unspool check --run` against bare `PTRACE_SINGLESTEP`: steps per second of one program, each
//! with its row compared with the truth, alternating.
//!
//! `cargo bench -p unspool-bench --bench step`. The whole program is in scope, and no instruction
//! is skipped after enough visits.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use unspool_bench::{Scratch, median, single_step};
use unspool_single_step::{RowSource, StepRequest};
use unspool_table_store::TableSource;

const ROUNDS: usize = 9;

/// Calls, saved registers and a loop: 15 instructions a turn.
const PROGRAM: &str = "
	.globl	_start
	.type	_start, @function
_start:	.cfi_startproc
	.cfi_undefined %rip
	call	work
	mov	$60, %eax
	xor	%edi, %edi
	syscall
	.cfi_endproc
	.size	_start, . - _start
	.type	work, @function
work:	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	mov	$4000, %ebx
1:	call	saves
	dec	%ebx
	jnz	1b
	pop	%rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	work, . - work
	.type	saves, @function
saves:	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	push	%r12
	push	%r13
	.cfi_offset %r12, -24
	.cfi_offset %r13, -32
	sub	$32, %rsp
	mov	%rdi, %r12
	mov	%rsi, %r13
	add	%r12, %r13
	lea	-16(%rbp), %rsp
	pop	%r13
	pop	%r12
	pop	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	saves, . - saves
";

fn main() -> anyhow::Result<()> {
    let folder = Scratch::new()?;
    let options = ["-nostdlib", "-static"];
    let program = folder.compile("program", "program.s", PROGRAM, &options)?;
    let request = StepRequest {
        command: vec![program.clone().into()],
        functions: vec!["work".to_owned(), "saves".to_owned()],
        modules: Vec::new(),
        rows: RowSource::Table(TableSource::Auto),
        visits: u32::MAX,
        time_limit: Duration::from_secs(600),
    };
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let steps = single_step(&mut Command::new(&program))?;
        bare.push(rate(steps, start));
        let start = Instant::now();
        let report = unspool_single_step::run(&request)?;
        ensure!(report.findings.is_empty() && report.checked + 10 > steps);
        ours.push(rate(report.steps, start));
    }
    let (bare, ours) = (median(bare), median(ours));
    println!("steps a second, medians of {ROUNDS} turns");
    println!(
        "bare {bare:.0} | with rows compared {ours:.0} | {:.1} %",
        100.0 * ours / bare
    );
    Ok(())
}

fn rate(steps: u64, since: Instant) -> f64 {
    let steps = u32::try_from(steps).unwrap_or(u32::MAX);
    f64::from(steps) / since.elapsed().as_secs_f64()
}
