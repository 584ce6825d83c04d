//! `unspool cache`.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use serde_json::json;
use unspool_files::RemovedFiles;
use unspool_symbols::NameCache;
use unspool_table_store::Store;

use crate::args::{CacheAction, CacheArgs, Format};
use crate::output;

pub(crate) fn run(args: &CacheArgs) -> anyhow::Result<ExitCode> {
    let store = Store::from_environment();
    match args.action {
        CacheAction::List { format } => list(&store, format),
        CacheAction::Clean { format } => clean(&store, format),
    }
}

fn clean(store: &Store, format: Format) -> anyhow::Result<ExitCode> {
    let tables = store.clean()?;
    let cache = NameCache::from_environment();
    let removed = cache.map_or(Ok(RemovedFiles::default()), |cache| cache.clean());
    let names = removed.context("cannot remove the cached names")?;
    match format {
        Format::Text => {
            let mut text = format!("removed {} tables, {} bytes\n", tables.count, tables.bytes);
            if let RemovedFiles { count: 1.., bytes } = names {
                let count = names.count;
                text += &format!("removed the names of {count} modules, {bytes} bytes\n");
            }
            output::print(text.as_bytes())?;
        }
        Format::Json => output::document(
            "cache-clean",
            &json!({
                "tables_removed": tables.count,
                "bytes": tables.bytes,
                "modules_with_names": names.count,
                "name_bytes": names.bytes,
            }),
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(store: &Store, format: Format) -> anyhow::Result<ExitCode> {
    let stored = store.list()?;
    let total: u64 = stored.iter().map(|table| table.size).sum();
    let cache = NameCache::from_environment();
    let kept = cache.as_ref().map_or(Ok((0, 0)), NameCache::size);
    let (names, name_bytes) = kept.context("cannot list the cached names")?;
    let age = |used: SystemTime| used.elapsed().unwrap_or_default().as_secs();
    if format == Format::Json {
        let tables: Vec<_> = stored
            .iter()
            .map(|table| {
                json!({
                    "path": table.path.to_string_lossy(),
                    "bytes": table.size,
                    "seconds_since_use": age(table.used),
                })
            })
            .collect();
        output::document(
            "cache",
            &json!({
                "tables": tables,
                "bytes": total,
                "modules_with_names": names,
                "name_bytes": name_bytes,
            }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::text();
    for table in &stored {
        let name = table.path.file_name().unwrap_or_default().to_string_lossy();
        writeln!(
            out,
            "{:>10} {:>6} h  {name}",
            table.size,
            age(table.used) / 3600
        )?;
    }
    let folder = store
        .cache_folder()
        .map(|folder| folder.display().to_string());
    writeln!(
        out,
        "{} tables, {total} bytes in {}",
        stored.len(),
        folder.unwrap_or_default()
    )?;
    if let Some(cache) = cache.filter(|_| names > 0) {
        let folder = cache.folder();
        let folder = folder.display();
        writeln!(
            out,
            "names of {names} modules, {name_bytes} bytes in {folder}"
        )?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
