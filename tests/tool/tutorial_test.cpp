// docs/tutorial.md and README.md, run line by line in a shell on a terminal, with the installed
// tool and library. What the page shows is compared with what was printed.

#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using lines = std::vector<std::string>;

/// A command of the page and the lines that it prints, or a file that the page shows.
struct step {
    std::string command = {};
    std::string file = {};
    std::string source = {};
    lines shown = {};
    lines printed = {};
};

lines lines_of(const std::string& text) {
    lines all;
    std::istringstream in{text};
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
}

/// The ```console blocks, whose commands begin with "$ ", and the ```cpp blocks whose first line
/// names the file.
std::vector<step> steps_of(const std::string& page) {
    std::vector<step> all;
    std::string language;
    for (const auto& line : lines_of(page)) {
        if (line.starts_with("```")) {
            language = line.substr(3);
        } else if (language == "cpp" && line.starts_with("// ") && line.ends_with(".cpp")) {
            all.push_back({.file = line.substr(3), .source = line + "\n"});
        } else if (language == "cpp" && !all.empty() && !all.back().file.empty()) {
            all.back().source += line + "\n";
        } else if (language == "console" && line.starts_with("$ ")) {
            all.push_back({.command = line.substr(2)});
        } else if (language == "console") {
            REQUIRE_FALSE(all.empty());
            all.back().shown.push_back(line);
        }
    }
    return all;
}

std::string host_name() {
    std::array<char, 256> name{};
    REQUIRE(gethostname(name.data(), name.size() - 1) == 0);
    return name.data();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
    }
    return text;
}

/// The line with placeholders for what differs from run to run: durations, ids of processes, of
/// threads and of rows, and the padding of columns.
std::string without_variable_parts(const std::string& line) {
    static const std::vector<std::pair<std::regex, std::string>> parts{
        {std::regex{" +"}, " "},
        {std::regex{"\\b[0-9]+(\\.[0-9]+)?(ms|s|m|h)([0-9]+s)?(?![a-z])"}, "<time>"},
        {std::regex{"\\b(pid|thread|session|grant id) [0-9]+"}, "$1 <id>"},
        {std::regex{"random:[0-9]+"}, "random:<id>"},
        {std::regex{"\\balpha [0-9]+"}, "alpha <pid>"},
        {std::regex{"(rowlock run [a-z]+) [0-9]+$"}, "$1 <thread>"}};
    std::string text = line;
    for (const auto& [variable, name] : parts) text = std::regex_replace(text, variable, name);
    return text;
}

/// A line "…" stands for any number of lines.
bool matches(const lines& shown, const lines& printed) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < shown.size(); ++i) {
        if (shown[i] == "…") {
            const std::size_t rest = shown.size() - i - 1;
            if (printed.size() < at + rest) return false;
            at = printed.size() - rest;
        } else if (at >= printed.size() ||
                   without_variable_parts(shown[i]) != without_variable_parts(printed[at++])) {
            return false;
        }
    }
    return at == printed.size();
}

/// For a command. One of them compiles, and the machine may be busy.
constexpr auto enough_time = 3min;

/// A shell whose output is a terminal, and which ends each command with a mark.
class shell {
public:
    shell() {
        winsize size{.ws_row = 50, .ws_col = 250, .ws_xpixel = 0, .ws_ypixel = 0};
        termios raw{};
        cfmakeraw(&raw);
        int terminal = -1;
        std::array<int, 2> pipe{};
        REQUIRE(openpty(&screen_, &terminal, nullptr, &raw, &size) == 0);
        REQUIRE(pipe2(pipe.data(), O_CLOEXEC) == 0);
        for (const int each : {screen_, terminal}) fcntl(each, F_SETFD, FD_CLOEXEC);
        fcntl(screen_, F_SETFL, O_NONBLOCK);
        commands_ = pipe[1];
        process_.emplace(
            tool::arguments{"bash", "-c",
                            "status=0; while IFS= read -r -d '' command <&3; do (exit $status); "
                            "eval \"$command\" 3<&-; status=$?; printf '\\036'; done"},
            tool::setting{.variables = {{"PATH", ROWLOCK_PREFIX "/bin:/usr/bin:/bin"},
                                        {"PKG_CONFIG_PATH", ROWLOCK_PREFIX "/lib/pkgconfig"},
                                        {"LD_LIBRARY_PATH", ROWLOCK_PREFIX "/lib"},
                                        {"TERM", "xterm"}},
                          .folder = home_.path(),
                          .before_exec = [=] {
                              setpgid(0, 0);
                              dup2(terminal, 1);
                              dup2(terminal, 2);
                              dup2(pipe[0], 3);
                          }});
        close(terminal);
        close(pipe[0]);
    }
    shell(const shell&) = delete;
    shell& operator=(const shell&) = delete;
    ~shell() {
        kill(-process_->id(), SIGKILL);
        process_.reset();
        close(commands_);
        close(screen_);
    }

    /// What the command printed, as on a machine "alpha" whose user is "alice".
    lines run(const std::string& command) {
        REQUIRE(write(commands_, command.c_str(), command.size() + 1) ==
                static_cast<ssize_t>(command.size() + 1));
        std::string text;
        CAPTURE(command);
        CAPTURE(text);
        REQUIRE(tool::eventually(
            [&] {
                std::array<char, 4096> some{};
                for (ssize_t got = 0; (got = read(screen_, some.data(), some.size())) > 0;) {
                    text.append(some.data(), static_cast<std::size_t>(got));
                }
                return text.ends_with('\036');
            },
            enough_time));
        text.pop_back();
        text = replaced(text, home_.path(), "/home/alice");
        return lines_of(std::regex_replace(text, std::regex{"\\b" + host_name() + "\\b"}, "alpha"));
    }
    void save(const std::string& name, const std::string& text) {
        std::ofstream{home_ / ("tutorial/" + name)} << text;
    }

private:
    tool::scratch home_;
    int screen_ = -1;
    int commands_ = -1;
    std::optional<tool::process> process_;
};

/// Repeats a command that only looks, since the jobs in the background may not have got so far.
lines output_of(shell& in, const step& what) {
    const bool looks = std::regex_search(what.command, std::regex{"^rowlock (ls|show|held) "}) ||
                       what.command == "rowlock ls";
    lines printed;
    static_cast<void>(tool::eventually(
        [&] {
            printed = in.run(what.command);
            return !looks || matches(what.shown, printed);
        },
        enough_time));
    return printed;
}

std::string joined(const lines& all) {
    std::string text;
    for (const auto& each : all) text += each + "\n";
    return text;
}

/// The steps of a page, run in a shell.
std::vector<step> run(const std::string& page) {
    auto steps = steps_of(tool::contents(ROWLOCK_SOURCE_DIR "/" + page));
    shell in;
    for (auto& each : steps) {
        if (each.file.empty()) {
            each.printed = output_of(in, each);
        } else {
            in.save(each.file, each.source);
        }
    }
    return steps;
}

const std::vector<step>& tutorial() {
    static const auto all = run("docs/tutorial.md");
    return all;
}

/// How many lines were compared.
int compare(const std::vector<step>& steps) {
    int compared = 0;
    for (const auto& each : steps) {
        CAPTURE(each.command);
        CAPTURE(joined(each.shown));
        CAPTURE(joined(each.printed));
        CHECK(matches(each.shown, each.printed));
        compared += static_cast<int>(each.shown.size());
    }
    return compared;
}

}  // namespace

TEST_CASE("the tutorial prints what its page shows") {
    CHECK(compare(tutorial()) > 30);
}

TEST_CASE("README.md's commands print what it shows") {
    CHECK(compare(run("README.md")) > 5);
}

TEST_CASE("the tutorial's program has about twenty lines") {
    int programs = 0;
    for (const auto& each : tutorial()) {
        if (each.file.empty()) continue;
        ++programs;
        CHECK(each.file == "report.cpp");
        CHECK(lines_of(each.source).size() <= 26);
    }
    CHECK(programs == 1);
}

TEST_CASE("a wrong line of output in the tutorial is found (control)") {
    for (const auto& each : tutorial()) {
        for (std::size_t i = 0; i < each.shown.size(); ++i) {
            if (each.shown[i] == "…" || each.shown[i].empty()) continue;
            CAPTURE(each.shown[i]);
            auto wrong = each.shown;
            ++wrong[i][wrong[i].find_first_not_of(' ')];
            CHECK_FALSE(matches(wrong, each.printed));
            wrong[i] = each.shown[i] + " not";
            CHECK_FALSE(matches(wrong, each.printed));
            if (std::ranges::find(wrong, "…") != wrong.end()) continue;
            wrong.erase(wrong.begin() + static_cast<std::ptrdiff_t>(i));
            CHECK_FALSE(matches(wrong, each.printed));
        }
        auto longer = each.shown;
        longer.emplace_back("and more");
        CHECK_FALSE(matches(longer, each.printed));
    }
}
