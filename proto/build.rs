//! Compiles the contract without a protoc binary and keeps its descriptors for reflection.

#[path = "build/methods.rs"]
mod methods;
#[path = "build/options.rs"]
mod options;
#[path = "build/reasons.rs"]
mod reasons;
#[path = "build/shapes.rs"]
mod shapes;

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;
use prost_reflect::DescriptorPool;
use prost_types::FileDescriptorSet;

const FILES: [&str; 7] = [
    "ccm/discovery/v1/discovery.proto",
    "ccm/cloudprovider/v1alpha1/cloud_provider.proto",
    "ccm/cloudprovider/v1alpha1/instances.proto",
    "ccm/cloudprovider/v1alpha1/load_balancers.proto",
    "ccm/cloudprovider/v1alpha1/routes.proto",
    "ccm/cloudprovider/v1alpha1/volumes.proto",
    "ccm/cloudprovider/v1alpha1/clusters.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=ccm");
    println!("cargo:rerun-if-changed=build");
    let mut compiler = protox::Compiler::new(["."])?;
    // Encoded, since only so the options of our own are kept.
    compiler.include_imports(true).include_source_info(true);
    let descriptors = compiler.open_files(FILES)?.encode_file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), &descriptors)?;
    let pool = DescriptorPool::decode(descriptors.as_slice())?;
    fs::write(out.join("traits.rs"), reasons::traits(&pool)?)?;
    fs::write(out.join("methods.rs"), methods::methods(&pool)?)?;
    fs::write(out.join("shapes.rs"), shapes::shapes(&pool)?)?;
    // So that code for messages of any type finds one type in the descriptors.
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure()
        // A provider serves some RPCs of a service and not others: the rest answers UNIMPLEMENTED.
        .generate_default_stubs(true)
        .compile_fds_with_config(FileDescriptorSet::decode(descriptors.as_slice())?, config)?;
    Ok(())
}
