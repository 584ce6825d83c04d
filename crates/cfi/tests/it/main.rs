//! Tests of the reader on whole sections: of files of this machine, assembled, made by hand,
//! and damaged. One binary, so that they are linked once.

#[cfg(test)]
mod assembled;
#[cfg(test)]
mod build;
#[cfg(test)]
mod by_hand;
#[cfg(test)]
mod damaged;
#[cfg(test)]
mod files;
#[cfg(test)]
mod generated;
#[cfg(test)]
mod lookup;
#[cfg(test)]
mod report_2018;
#[cfg(test)]
mod sframe;
#[cfg(test)]
mod thumb;
#[cfg(test)]
mod written;
