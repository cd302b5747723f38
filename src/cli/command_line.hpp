#pragma once

namespace rowlock::cli {

/// Parses, runs, reports; the exit code of the process.
int execute(int argc, char** argv);

}  // namespace rowlock::cli
