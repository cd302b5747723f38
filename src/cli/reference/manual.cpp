#include "cli/reference/command_page.hpp"

#include <fmt/format.h>

#include <sstream>
#include <string_view>

namespace rowlock::cli::reference {
namespace {

/// Text that roff prints unchanged, and that can be copied into a shell.
std::string plain(std::string_view text) {
    std::string out;
    if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
    for (const char each : text) {
        switch (each) {
            case '\\':
                out += "\\e";
                break;
            case '-':
                out += "\\-";
                break;
            case '\'':
                out += "\\(aq";
                break;
            case '`':
                out += "\\(ga";
                break;
            case '^':
                out += "\\(ha";
                break;
            case '~':
                out += "\\(ti";
                break;
            default:
                out += each;
        }
    }
    return out;
}

std::string bold(std::string_view text) {
    return "\\fB" + plain(text) + "\\fR";
}

std::string italic(std::string_view text) {
    return "\\fI" + plain(text) + "\\fR";
}

std::string dashed(std::string text) {
    std::ranges::replace(text, ' ', '-');
    return text;
}

/// What --help prints below the options is prose, with examples and tables that are indented.
struct epilogue {
    std::string prose, examples, exit_codes;
};

epilogue sort_out(const std::string& text) {
    epilogue out;
    std::string* into = &out.prose;
    bool verbatim = false, between = true;
    const auto set_verbatim = [&](bool on) {
        if (on == verbatim) return;
        *into += on ? ".PP\n.nf\n.RS 4\n" : ".RE\n.fi\n";
        verbatim = on;
    };
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) {
            set_verbatim(false);
            between = true;
            continue;
        }
        const bool example = line == "Examples:" || line == "Example:";
        if (example || line == "Exit codes:") {
            set_verbatim(false);
            into = example ? &out.examples : &out.exit_codes;
            continue;
        }
        const bool indented = line.starts_with("  ");
        if (!indented) {
            between = between || verbatim;
            set_verbatim(false);
            into = &out.prose;
            if (between) *into += ".PP\n";
        }
        set_verbatim(indented);
        *into += plain(indented ? std::string_view{line}.substr(2) : line) + "\n";
        between = false;
    }
    set_verbatim(false);
    return out;
}

void add_section(std::string& out, const char* title, std::string text) {
    constexpr std::string_view paragraph = ".PP\n";
    if (text.starts_with(paragraph)) text.erase(0, paragraph.size());  // the heading begins one
    if (!text.empty()) out += fmt::format(".SH {}\n{}", title, text);
}

std::string entries(const std::vector<option_entry>& list) {
    std::string out;
    for (const auto& each : list) {
        out += ".TP\n";
        for (const auto& name : each.names) {
            if (&name != &each.names.front()) out += ", ";
            out += name.starts_with('-') ? bold(name) : italic(name);
        }
        if (!each.value.empty() && each.names.front().starts_with('-')) {
            out += " " + italic(each.value);
        }
        out += "\n" + plain(each.help) + ".\n";
        if (!each.choices.empty()) {
            out += plain(fmt::format("One of {}.", fmt::join(each.choices, ", "))) + "\n";
        }
        if (!each.needs.empty()) {
            out += plain(fmt::format("Only with {}.", fmt::join(each.needs, ", "))) + "\n";
        }
        if (!each.excludes.empty()) {
            out += plain(fmt::format("Not with {}.", fmt::join(each.excludes, ", "))) + "\n";
        }
    }
    return out;
}

}  // namespace

std::string manual_page(const command_page& page, const command_page& tool,
                        const std::string& version) {
    const bool whole = &page == &tool;
    const std::string title = dashed(page.full_name);
    std::string upper = title;
    std::ranges::transform(upper, upper.begin(), [](char c) {
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });

    std::string out = ".\\\" Made from the options of the tool when it was built.\n";
    out += fmt::format(".TH {} 1 \"\" \"rowlock {}\" \"User Commands\"\n", plain(upper), version);
    out += ".SH NAME\n" + plain(title) + " \\- " +
           plain(whole ? "locks in the SQL database you already run" : page.summary) + "\n";
    std::string synopsis =
        bold(page.full_name) + "\n" + plain(page.usage.substr(page.full_name.size() + 1)) + "\n";
    for (const auto& each : page.commands) {
        if (!whole) synopsis += ".br\n" + plain(each.usage) + "\n";
    }
    add_section(out, "SYNOPSIS", synopsis);
    const auto below = sort_out(page.epilogue);
    add_section(out, "DESCRIPTION",
                below.prose.empty() ? plain(page.summary) + ".\n" : below.prose);

    std::string commands;
    for (const auto& each : page.commands) {
        commands +=
            ".TP\n" + bold(whole ? each.name : each.full_name) + "\n" + plain(each.summary) + ".\n";
        if (!whole) commands += ".RS\n" + entries(each.arguments) + ".RE\n";
    }
    add_section(out, "COMMANDS", commands);
    add_section(out, "ARGUMENTS", entries(page.arguments));
    add_section(out, "OPTIONS", entries(page.options));
    add_section(out, "EXIT STATUS", below.exit_codes);
    add_section(out, "EXAMPLES", below.examples);

    std::string others;
    const auto refer = [&others](const command_page& to) {
        if (!others.empty()) others += ",\n";
        others += bold(dashed(to.full_name)) + "(1)";
    };
    if (!whole) refer(tool);
    for (const auto& each : tool.commands) {
        if (&each != &page) refer(each);
    }
    add_section(out, "SEE ALSO", others + "\n");
    return out;
}

}  // namespace rowlock::cli::reference
