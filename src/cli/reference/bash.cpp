#include "cli/reference/command_page.hpp"

#include <fmt/format.h>

#include <string_view>

namespace rowlock::cli::reference {
namespace {

constexpr std::string_view before =
    R"sh(# Completion of rowlock for bash. Made from the options of the tool when it was built.

_rowlock() {
    COMPREPLY=()
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' word i
    # bash takes --option=value apart at the =.
    if [[ $current == = ]]; then current=; fi
    if [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi
    for ((i = 1; i < COMP_CWORD; ++i)); do
        word=${COMP_WORDS[i]}
        if [[ $word == -- ]]; then
            case $command in
                @RUNNERS@)
                    if declare -F _command_offset >/dev/null; then
                        _command_offset $((i + 1))
                    elif ((COMP_CWORD == i + 1)); then
                        mapfile -t COMPREPLY < <(compgen -c -- "$current")
                    else
                        compopt -o default
                    fi
                    ;;
            esac
            return
        fi
        case "$command $word" in
            @COMMANDS@) command=${command:+$command }$word ;;
        esac
    done

    local values='' words='' options=''
    case "$command $previous" in
)sh";

constexpr std::string_view between = R"sh(    esac
    case $command in
)sh";

constexpr std::string_view after = R"sh(    esac
    if [[ $current == -* || -z $words ]]; then words=$options; fi
    if [[ -n $values ]]; then words=$values; fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _rowlock rowlock
)sh";

std::string replaced(std::string_view text, std::string_view what, const std::string& by) {
    std::string out{text};
    return out.replace(out.find(what), what.size(), by);
}

struct tables {
    std::vector<std::string> commands, runners;
    std::string values, words;
};

void add_to_bash(const command_page& page, tables& into) {
    const std::string& name = page.path;
    std::vector<std::string> words, options;
    for (const auto& each : page.commands) {
        words.push_back(each.name);
        into.commands.push_back(fmt::format("'{} {}'", name, each.name));
    }
    if (page.runs_a_command) into.runners.push_back(name);
    for (const auto& each : page.arguments) {
        words.insert(words.end(), each.choices.begin(), each.choices.end());
    }
    for (const auto& each : page.options) {
        options.insert(options.end(), each.names.begin(), each.names.end());
        if (each.value.empty()) continue;
        std::vector<std::string> patterns;
        for (const auto& option : each.names)
            patterns.push_back(fmt::format("'{} {}'", name, option));
        std::string action = "return";
        if (!each.choices.empty()) {
            action = fmt::format("values='{}'", fmt::join(each.choices, " "));
        } else if (each.value == "FILE") {
            action = "compopt -o default; return";
        }
        into.values += fmt::format("        {}) {} ;;\n", fmt::join(patterns, " | "), action);
    }
    into.words += fmt::format("        '{}') words='{}' options='{}' ;;\n", name,
                              fmt::join(words, " "), fmt::join(options, " "));
    for (const auto& each : page.commands) add_to_bash(each, into);
}

}  // namespace

std::string bash_completion(const command_page& tool) {
    tables made;
    add_to_bash(tool, made);
    std::string out =
        replaced(before, "@RUNNERS@", fmt::format("{}", fmt::join(made.runners, " | ")));
    out = replaced(out, "@COMMANDS@", fmt::format("{}", fmt::join(made.commands, " | ")));
    return out + made.values + std::string{between} + made.words + std::string{after};
}

}  // namespace rowlock::cli::reference
