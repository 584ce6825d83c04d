//! A page to look at a profile in a browser: one file, without requests to anywhere.
//!
//! Its program is the modules and the style sheet in `html/page/`, which people can read and
//! change. The build needs no other tool: the modules are joined in the order of `MODULES`, without
//! their imports and exports. A content security policy permits this script and this style sheet
//! by their hashes, and nothing else. The page takes names as text, never as markup.

mod code;
mod content;
mod stack_tree;

use std::io::{self, Write};

use libdeflater::{CompressionLvl, Compressor};
use sha2::{Digest as _, Sha256};

use super::View;
use crate::sampled_code::SampledCode;

/// The modules of the page's program, each after those that it imports.
const MODULES: [&str; 9] = [
    include_str!("html/page/profile.mjs"),
    include_str!("html/page/state.mjs"),
    include_str!("html/page/tree.mjs"),
    include_str!("html/page/difference.mjs"),
    include_str!("html/page/flame.mjs"),
    include_str!("html/page/timeline.mjs"),
    include_str!("html/page/tables.mjs"),
    include_str!("html/page/code.mjs"),
    include_str!("html/page/main.mjs"),
];
const STYLE: &str = include_str!("html/page/page.css");
const BODY: &str = include_str!("html/page/body.html");

/// Writes the samples, without source lines and instructions.
///
/// # Errors
///
/// They cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    write_with_code(out, view, &SampledCode::default())
}

/// Writes the samples, and the code of functions.
///
/// # Errors
///
/// They cannot be written.
pub fn write_with_code(out: &mut dyn Write, view: &View<'_>, code: &SampledCode) -> io::Result<()> {
    write_page(out, view, code, None)
}

/// Writes the samples of a profile, compared with those of one before.
///
/// # Errors
///
/// They cannot be written.
pub fn write_comparison(
    out: &mut dyn Write,
    before: &View<'_>,
    after: &View<'_>,
    code: &SampledCode,
) -> io::Result<()> {
    write_page(out, after, code, Some(before))
}

fn write_page(
    out: &mut dyn Write,
    view: &View<'_>,
    code: &SampledCode,
    before: Option<&View<'_>>,
) -> io::Result<()> {
    let script = script();
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>unspool</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{BODY}",
        content_security_policy(&script)
    )?;
    let places = code.places();
    let content = content::encode(view, |location| places.get(&location).copied().unwrap_or(0))?;
    write_data(out, "profile", &content.bytes)?;
    if let Some(before) = before {
        write_data(out, "before", &content::encode(before, |_| 0)?.bytes)?;
    }
    write_data(out, "code", &code.encode(view, &content.functions)?)?;
    writeln!(
        out,
        "<script type=\"module\">{script}</script>\n</body>\n</html>"
    )
}

/// Writes an element with data.
fn write_data(out: &mut dyn Write, id: &str, content: &[u8]) -> io::Result<()> {
    write!(
        out,
        "<script type=\"application/octet-stream\" id=\"{id}\">"
    )?;
    write_base64(out, &compressed(content)?)?;
    writeln!(out, "</script>")
}

/// The policy of the page: its script and its style sheet, and no request.
fn content_security_policy(script: &str) -> String {
    let hash = |text: &str| {
        let mut hash = Vec::new();
        // Writing to memory does not fail.
        let _ = write_base64(&mut hash, &Sha256::digest(text));
        String::from_utf8(hash).unwrap_or_default()
    };
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'",
        hash(script),
        hash(STYLE)
    )
}

/// The modules as one.
fn script() -> String {
    let mut script = String::from("\n");
    for module in MODULES {
        let mut is_import = false;
        for line in module.lines() {
            is_import |= line.starts_with("import ");
            if !is_import {
                script.push_str(line.strip_prefix("export ").unwrap_or(line));
                script.push('\n');
            }
            is_import &= !line.ends_with(';');
        }
    }
    script
}

fn compressed(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut compressed = vec![0; compressor.zlib_compress_bound(content.len())];
    let length = compressor.zlib_compress(content, &mut compressed);
    let length = length.map_err(|error| io::Error::other(format!("{error:?}")))?;
    compressed.truncate(length);
    Ok(compressed)
}

/// Writes base64 with padding (RFC 4648 §4).
fn write_base64(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits: u32, n| {
            bits << 8 | group.get(n).map_or(0, |byte| u32::from(*byte))
        });
        for n in 0..4 {
            let digit = bits >> (18 - 6 * n) & 0x3f;
            text.push(if n <= group.len() {
                DIGITS.get(digit as usize).copied().unwrap_or(b'=')
            } else {
                b'='
            });
        }
    }
    out.write_all(&text)
}
