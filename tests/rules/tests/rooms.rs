//! The rooms of the host are ordered: each uses only those below it.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{fs, path::Path};

use syn::{Attribute, Item, ItemMod, Path as Named, UseTree, visit::Visit};

/// From the top down; rooms on one floor do not know each other.
const FLOORS: [&[&str]; 10] = [
    &["assembly"],
    &["manager"],
    &["controllers"],
    &["reconcile"],
    &["cloud"],
    &["kube"],
    &["election", "shadow"],
    &["outage"],
    &["flag"],
    &["cidr", "clock", "metric", "text", "trace"],
];

/// The parts of the host that shipped code of one room names.
#[derive(Default)]
struct Names(Vec<String>);

impl<'ast> Visit<'ast> for Names {
    fn visit_use_tree(&mut self, tree: &'ast UseTree) {
        if let UseTree::Path(path) = tree
            && path.ident == "crate"
        {
            firsts(&path.tree, &mut self.0);
        }
    }

    fn visit_path(&mut self, path: &'ast Named) {
        let mut parts = path.segments.iter().map(|part| part.ident.to_string());
        if parts.next().as_deref() == Some("crate") {
            self.0.extend(parts.next());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

fn firsts(tree: &UseTree, into: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => into.push(path.ident.to_string()),
        UseTree::Name(name) => into.push(name.ident.to_string()),
        UseTree::Rename(name) => into.push(name.ident.to_string()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| firsts(tree, into)),
        UseTree::Glob(_) => {}
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|one| one.path().is_ident("cfg")).any(|one| {
        let condition = one.meta.require_list().map(|list| list.tokens.to_string().replace(' ', ""));
        condition.is_ok_and(|condition| ["test", "any(test,fuzzing)"].contains(&condition.as_str()))
    })
}

/// Reads a module and all below it, as the compiler finds them.
fn read(file: &Path, names: &mut Names) {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    names.visit_file(&parsed);
    for item in &parsed.items {
        if let Item::Mod(module) = item
            && module.content.is_none()
            && !is_test(&module.attrs)
        {
            read(&file.with_extension("").join(format!("{}.rs", module.ident)), names);
        }
    }
}

#[test]
fn a_room_uses_only_rooms_below_it() {
    let floor = |room: &str| FLOORS.iter().position(|rooms| rooms.contains(&room));
    let source = workspace_rules::root().join("ccm-host/src");
    let lib = syn::parse_file(&fs::read_to_string(source.join("lib.rs")).expect("text")).expect("Rust");
    for item in &lib.items {
        if let Item::Mod(module) = item
            && !is_test(&module.attrs)
        {
            let room = module.ident.to_string();
            assert!(
                floor(&room).is_some(),
                "{room} is a new room of the host: say here on which floor it stands"
            );
        }
    }
    let mut breaches = Vec::new();
    for (at, room) in
        FLOORS.iter().enumerate().flat_map(|(at, rooms)| rooms.iter().map(move |room| (at, room)))
    {
        let mut names = Names::default();
        read(&source.join(format!("{room}.rs")), &mut names);
        let is_read = at > 0 || names.0.iter().any(|named| named == "manager");
        assert!(is_read, "{room} puts everything together, but nothing that it names was found");
        names.0.sort();
        names.0.dedup();
        let upwards =
            names.0.iter().filter(|named| named != room && floor(named).is_some_and(|its| its <= at));
        breaches.extend(upwards.map(|named| format!("{room} must not use {named}, which stands no lower")));
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}
