//! JSON documents, compared with the fields that `docs/json.md` names.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/json.md");

/// Parses a document. It must have the fields of its schema, and no others.
#[track_caller]
pub(crate) fn document(text: impl AsRef<[u8]>) -> Value {
    let document: Value = serde_json::from_slice(text.as_ref()).unwrap();
    let differences = differences(&document);
    assert!(
        differences
            .iter()
            .any(|it| it.unknown.is_empty() && it.missing.is_empty()),
        "{}: {differences:#?}",
        document["schema"]
    );
    document
}

/// How a document differs from a description of its schema.
#[derive(Debug, Default)]
struct Difference {
    unknown: Vec<String>,
    missing: Vec<String>,
}

fn differences(document: &Value) -> Vec<Difference> {
    static DESCRIPTIONS: LazyLock<Vec<Description>> = LazyLock::new(read_page);
    assert_eq!(document["version"], 2, "{document}");
    let schema = document["schema"].as_str().unwrap();
    let of_schema = DESCRIPTIONS.iter().filter(|it| it.has_schema(schema));
    let compared = of_schema.map(|description| {
        let mut difference = Difference::default();
        difference.add(&description.root, document, "");
        difference
    });
    compared.collect()
}

impl Difference {
    fn add(&mut self, field: &Field, value: &Value, path: &str) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| self.add(field, one, path)),
            Value::Object(object) => {
                // A file that cannot be read.
                let is_error = object.len() == 2 && object.contains_key("error");
                if is_error || (field.is_map && field.fields.is_empty()) {
                    return;
                }
                for (name, value) in object {
                    let path = format!("{path}.{name}");
                    match field.fields.get(name) {
                        Some(field) => self.add(field, value, &path),
                        None => self.unknown.push(path),
                    }
                }
                for (name, field) in &field.fields {
                    if !field.is_optional && !object.contains_key(name) {
                        self.missing.push(format!("{path}.{name}"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// A section of the page.
struct Description {
    schemas: Vec<&'static str>,
    root: Field,
}

impl Description {
    fn has_schema(&self, schema: &str) -> bool {
        self.schemas.contains(&schema)
    }
}

/// A field, with the fields of its objects.
#[derive(Clone, Default)]
struct Field {
    /// Whether it is marked with `?`.
    is_optional: bool,
    /// Whether it is an object whose keys are not fixed.
    is_map: bool,
    fields: BTreeMap<String, Field>,
}

impl Field {
    /// The field at a path, which is added if it is new.
    fn at(&mut self, path: &str) -> &mut Field {
        let names = path.split('.').map(|name| name.trim_end_matches("[]"));
        let names = names.filter(|name| !name.is_empty());
        names.fold(self, |field, name| {
            field.fields.entry(name.to_owned()).or_default()
        })
    }
}

/// The words in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Fields that are described where another schema's are.
struct FieldReference {
    section: usize,
    path: String,
    schema: &'static str,
    path_there: String,
}

/// Reads the headings, the lines before tables that say whose fields they have, and the tables.
fn read_page() -> Vec<Description> {
    let mut all: Vec<Description> = Vec::new();
    let mut references = Vec::new();
    let mut owners = vec![""];
    for block in PAGE.split("\n\n") {
        if block.starts_with("##") {
            let mut root = Field::default();
            root.at("schema");
            root.at("version");
            let schemas = quoted(block);
            all.push(Description { schemas, root });
        }
        let is_table = block.starts_with("| field ");
        for row in block.lines().skip(2).filter(|_| is_table) {
            let (names, about) = row.trim_start_matches("| ").split_once(" |").unwrap();
            let (section, last) = all.iter_mut().enumerate().next_back().unwrap();
            for path in owners.iter().flat_map(|owner| paths(owner, names)) {
                let field = last.root.at(&path);
                field.is_optional |= names.contains('?');
                field.is_map |= about.contains("object");
                references.extend(reference(section, path, about));
            }
        }
        owners = match quoted(block) {
            owners if block.starts_with('`') && block.ends_with(':') => owners,
            _ => vec![""],
        };
    }
    for reference in references {
        let mut there = all.iter_mut().filter(|it| it.has_schema(reference.schema));
        let there = &mut there.next().unwrap().root;
        let mut fields = there.at(&reference.path_there).fields.clone();
        let here = &mut all[reference.section].root;
        here.at(&reference.path).fields.append(&mut fields);
    }
    all
}

/// The paths of the fields that a row names: `.name` is beside the first.
fn paths(owner: &str, names: &str) -> Vec<String> {
    let names = quoted(names);
    let (first, _) = names[0].rsplit_once('.').unwrap_or_default();
    let path = |name: &&str| match name.strip_prefix('.') {
        Some(name) => format!("{owner}.{first}.{name}"),
        None => format!("{owner}.{name}"),
    };
    names.iter().map(path).collect()
}

/// What a row refers to: `as in SCHEMA`, or `as PATH of SCHEMA`.
fn reference(section: usize, path: String, about: &'static str) -> Option<FieldReference> {
    let words = quoted(about);
    let schema = words.iter().position(|word| word.starts_with("unspool."))?;
    let path_there = if about.contains("as in `") {
        path.clone()
    } else {
        words[schema.checked_sub(1)?].to_owned()
    };
    Some(FieldReference {
        section,
        path,
        schema: words[schema],
        path_there,
    })
}

/// Examples are shortened, so they may lack fields.
#[test]
fn examples_have_fields_that_are_described() {
    let blocks = PAGE.split("```json\n").skip(1);
    let examples: Vec<&str> = blocks.map(|it| it.split("```").next().unwrap()).collect();
    assert!(examples.len() > 9, "{}", examples.len());
    for example in examples {
        let document: Value = serde_json::from_str(example).unwrap();
        let differences = differences(&document);
        let is_described = differences.iter().any(|it| it.unknown.is_empty());
        assert!(is_described, "{example}: {differences:#?}");
    }
}
