#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace rowlock::cli {

/// Parses, runs, reports; the exit code of the process.
int execute(int argc, char** argv);

/// Shows all commands and options, for manual pages and completions (reference/).
void describe_to(const std::function<void(const CLI::App&)>& reader);

}  // namespace rowlock::cli
