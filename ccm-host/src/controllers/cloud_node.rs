mod addresses;
mod decide;
mod labels;
mod owned_labels;
mod provided_ip;
