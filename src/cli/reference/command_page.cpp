#include "cli/reference/command_page.hpp"

#include <CLI/CLI.hpp>

#include <set>
#include <string_view>

namespace rowlock::cli::reference {
namespace {

/// Of "TEXT:{on,off,drop}" the words in braces.
std::vector<std::string> choices_in(const std::string& type) {
    const auto open = type.find('{');
    if (open == std::string::npos) return {};
    return CLI::detail::split(type.substr(open + 1, type.find('}', open) - open - 1), ',');
}

std::vector<std::string> names_of(const std::set<CLI::Option*>& options) {
    std::vector<std::string> names;
    for (const CLI::Option* each : options) names.push_back(each->get_name());
    std::ranges::sort(names);
    return names;
}

option_entry describe(const CLI::Option& option) {
    option_entry entry;
    if (option.get_positional()) {
        entry.names.push_back(option.get_name(true));
    } else {
        for (const auto& each : option.get_snames()) entry.names.push_back("-" + each);
        for (const auto& each : option.get_lnames()) entry.names.push_back("--" + each);
    }
    if (option.get_type_size() != 0) {
        const std::string type = option.get_type_name();
        entry.value = type.substr(0, type.find(':'));
        entry.choices = choices_in(type);
    }
    entry.help = option.get_description();
    if (!option.get_default_str().empty()) entry.help += " [" + option.get_default_str() + "]";
    entry.excludes = names_of(option.get_excludes());
    entry.needs = names_of(option.get_needs());
    return entry;
}

void add_options(const CLI::App& app, command_page& page) {
    for (const CLI::Option* each : app.get_options()) {
        auto& list = each->get_positional() ? page.arguments : page.options;
        list.push_back(describe(*each));
    }
}

std::string usage_of(const CLI::App& app, const std::string& before) {
    constexpr std::string_view label = "Usage: ";
    const std::string help = app.help(before);
    const auto begin = help.find(label) + label.size();
    return help.substr(begin, help.find('\n', begin) - begin);
}

command_page describe(const CLI::App& app, const command_page* above, const CLI::App* parent) {
    command_page page;
    page.name = page.full_name = app.get_name();
    if (above != nullptr) {
        page.path = above->path.empty() ? page.name : above->path + " " + page.name;
        page.full_name = above->full_name + " " + page.name;
    }
    page.summary = app.get_description();
    page.usage = usage_of(app, above == nullptr ? "" : above->full_name);
    page.runs_a_command = page.usage.find(" -- COMMAND") != std::string::npos;
    page.epilogue = app.get_footer();
    add_options(app, page);
    // Its own --help stands first; the others of the parent are accepted behind it, too.
    if (parent != nullptr && app.get_fallthrough()) {
        for (const CLI::Option* each : parent->get_options()) {
            if (each != parent->get_help_ptr()) page.options.push_back(describe(*each));
        }
    }
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
        page.commands.push_back(describe(*each, &page, &app));
    }
    return page;
}

}  // namespace

command_page describe(const CLI::App& app) {
    return describe(app, nullptr, nullptr);
}

}  // namespace rowlock::cli::reference
