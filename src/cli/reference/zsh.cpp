#include "cli/reference/command_page.hpp"

#include <fmt/format.h>

#include <string_view>

namespace rowlock::cli::reference {
namespace {

/// In single quotes of the shell, and in a specification of _arguments, where brackets and colons
/// have a meaning.
std::string quoted_for_zsh(std::string_view text, std::string_view special = "[]:\\") {
    std::string out;
    for (const char each : text) {
        if (each == '\'') {
            out += "'\\''";
            continue;
        }
        if (special.find(each) != std::string_view::npos) out += '\\';
        out += each;
    }
    return out;
}

std::string function_of(const command_page& page) {
    std::string name = "_" + page.full_name;
    for (char& each : name) {
        if (each == ' ' || each == '-') each = '_';
    }
    return name;
}

std::string action_of(const option_entry& entry) {
    if (!entry.choices.empty()) return fmt::format("({})", fmt::join(entry.choices, " "));
    return entry.value == "FILE" ? "_files" : " ";
}

std::string specification(const option_entry& option) {
    const std::string value =
        option.value.empty() ? "" : fmt::format(":{}:{}", option.value, action_of(option));
    const std::string help = "[" + quoted_for_zsh(option.help) + "]" + value;
    if (option.names.size() == 1) {
        // A lock may be given several times.
        const bool repeated = option.names.front() == "--lock";
        return fmt::format("'{}{}{}'", repeated ? "*" : "", option.names.front(), help);
    }
    return fmt::format("'({0})'{{{1}}}'{2}'", fmt::join(option.names, " "),
                       fmt::join(option.names, ","), help);
}

void add_to_zsh(const command_page& page, std::string& out) {
    for (const auto& each : page.commands) add_to_zsh(each, out);
    out += fmt::format(
        "{}() {{\n    local curcontext=$curcontext state line\n    typeset -A opt_args\n",
        function_of(page));
    if (page.runs_a_command) {
        out +=
            "    local -i mark=${words[(i)--]}\n"
            "    if (( mark < CURRENT )); then\n"
            "        shift $mark words\n"
            "        (( CURRENT -= mark ))\n"
            "        _normal\n"
            "        return\n"
            "    fi\n";
    }
    std::string specifications;
    for (const auto& each : page.options) specifications += " \\\n        " + specification(each);
    int position = 0;
    for (const auto& each : page.arguments) {
        specifications += fmt::format(" \\\n        '{}:{}:{}'", ++position,
                                      quoted_for_zsh(each.names.front()), action_of(each));
    }
    if (page.commands.empty()) {
        out += fmt::format("    _arguments -s{}\n}}\n\n", specifications);
        return;
    }
    out += fmt::format(
        "    _arguments -C{} \\\n        '1:command:->command' '*::argument:->argument'\n",
        specifications);
    out += "    case $state in\n        command)\n            local -a commands=(";
    for (const auto& each : page.commands) {
        out +=
            fmt::format("\n                '{}:{}'", each.name, quoted_for_zsh(each.summary, "\\"));
    }
    out +=
        ")\n            _describe command commands\n            ;;\n        argument)\n            "
        "case $words[1] in\n";
    for (const auto& each : page.commands) {
        out += fmt::format("                {}) {} ;;\n", each.name, function_of(each));
    }
    out += "            esac\n            ;;\n    esac\n}\n\n";
}

}  // namespace

std::string zsh_completion(const command_page& tool) {
    std::string out =
        "#compdef rowlock\n# Completion of rowlock for zsh. Made from the options of the tool when "
        "it was built.\n\n";
    add_to_zsh(tool, out);
    return out + "_rowlock \"$@\"\n";
}

}  // namespace rowlock::cli::reference
