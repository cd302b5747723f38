#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

/// Manual pages and completions, made when the tool is built from the options that it parses.
namespace rowlock::cli::reference {

struct option_entry {
    std::vector<std::string> names;  ///< "-w", "--wait"; of a positional argument "NAME"
    std::string value;               ///< "TIME"; empty: takes none
    std::vector<std::string> choices;
    std::string help;
    std::vector<std::string> excludes, needs;
};

struct command_page {
    std::string name;       ///< "set"
    std::string path;       ///< "semaphore set"; empty: the tool itself
    std::string full_name;  ///< "rowlock semaphore set"
    std::string summary;
    std::string usage;     ///< "rowlock semaphore set [OPTIONS] NAME PERMITS"
    std::string epilogue;  ///< what --help prints below the options
    std::vector<option_entry> options, arguments;
    std::vector<command_page> commands;
    bool runs_a_command = false;  ///< behind `--`
};

/// The tool with all its commands.
[[nodiscard]] command_page describe(const CLI::App& app);

[[nodiscard]] std::string manual_page(const command_page& page, const command_page& tool,
                                      const std::string& version);
/// Completions never ask a database: it may be far away, down or want a password.
[[nodiscard]] std::string bash_completion(const command_page& tool);
[[nodiscard]] std::string zsh_completion(const command_page& tool);
[[nodiscard]] std::string fish_completion(const command_page& tool);

}  // namespace rowlock::cli::reference
