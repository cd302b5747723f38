#include "cli/reference/command_page.hpp"

#include <fmt/format.h>

#include <string_view>

namespace rowlock::cli::reference {
namespace {

constexpr std::string_view functions =
    R"fish(# Completion of rowlock for fish. Made from the options of the tool when it was built.

# Succeeds at the arguments of exactly these commands: "semaphore set".
function __rowlock_in
    set -l found
    for word in (commandline -opc)[2..]
        test "$word" = -- && return 1
        if contains -- (string join -- ' ' $found $word) $__rowlock_commands
            set -a found $word
        end
    end
    test "$found" = "$argv"
end

# Prints the command behind -- as far as it is typed; fails before the --.
function __rowlock_command
    set -l tokens (commandline -opc)
    set -l mark (contains -i -- -- $tokens) || return 1
    set -e tokens[1..$mark]
    string join -- ' ' (string escape -- $tokens) (commandline -ct)
    return 0
end

)fish";

std::string quoted_for_fish(std::string_view text) {
    std::string out = "'";
    for (const char each : text) {
        if (each == '\'' || each == '\\') out += '\\';
        out += each;
    }
    return out + "'";
}

void list_commands(const command_page& page, std::vector<std::string>& into) {
    for (const auto& each : page.commands) {
        into.push_back(quoted_for_fish(each.path));
        list_commands(each, into);
    }
}

void add_to_fish(const command_page& page, std::string& out) {
    const std::string here = fmt::format("complete -c rowlock -n '__rowlock_in {}'", page.path);
    for (const auto& each : page.commands) {
        out += fmt::format("{} -a {} -d {}\n", here, each.name, quoted_for_fish(each.summary));
    }
    for (const auto& each : page.arguments) {
        if (each.choices.empty()) continue;
        out += fmt::format("{} -a '{}' -d {}\n", here, fmt::join(each.choices, " "),
                           quoted_for_fish(each.help));
    }
    for (const auto& each : page.options) {
        out += here;
        for (const auto& name : each.names) {
            out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
        }
        if (!each.value.empty()) {
            out += each.value == "FILE" ? " -r -F" : " -x";
            if (!each.choices.empty()) out += fmt::format(" -a '{}'", fmt::join(each.choices, " "));
        }
        out += fmt::format(" -d {}\n", quoted_for_fish(each.help));
    }
    for (const auto& each : page.commands) add_to_fish(each, out);
}

}  // namespace

std::string fish_completion(const command_page& tool) {
    std::vector<std::string> commands;
    list_commands(tool, commands);
    std::string out{functions};
    out += fmt::format("set -g __rowlock_commands {}\n\n", fmt::join(commands, " "));
    out += "complete -c rowlock -f\n";
    out +=
        "complete -c rowlock -n '__rowlock_command >/dev/null' -a '(complete -C "
        "(__rowlock_command))'\n";
    add_to_fish(tool, out);
    return out;
}

}  // namespace rowlock::cli::reference
