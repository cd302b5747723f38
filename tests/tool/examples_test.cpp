// Runs every shell example of --help and the documentation: with its lock free, with the lock held
// by another client, and with the database down. The protected command never runs without the lock.

#include "tool/tool.hpp"
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using tool::contents;
using tool::scratch;

struct example {
    std::string from;
    std::string script;
};

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> all;
    std::istringstream in{text};
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
}

bool calls_the_tool(const std::string& text) {
    static const std::regex call{"(^|[\\s(;&|])rowlock +[a-z]"};
    return std::regex_search(text, call);
}

bool takes_a_lock(const std::string& text) {
    static const std::regex call{"(^|[\\s(;&|])rowlock +(run|elect|acquire)\\b"};
    return std::regex_search(text, call);
}

/// The shells that have to run it: both for what is more than one plain command.
std::vector<std::string> shells_of(const std::string& script) {
    const bool plain = std::ranges::count(script, '\n') == 1 &&
                       script.find_first_of("$`&|;<>(){}'\"\\") == std::string::npos;
    if (plain) return {"dash"};
    return {"dash", "bash"};
}

/// Adds independent lines as one example each, and any other text as one script.
void add_examples(std::vector<example>& all, const std::string& from,
                  const std::vector<std::string>& lines) {
    const bool separate = std::ranges::all_of(lines, [](const std::string& line) {
        return line.empty() || line.starts_with("rowlock ") || line.starts_with("export ");
    });
    std::string script;
    for (const auto& line : lines) {
        if (separate && calls_the_tool(line)) all.push_back({from, line + "\n"});
        script += line + "\n";
    }
    if (!separate && calls_the_tool(script)) all.push_back({from, script});
}

/// Adds the indented lines under "Example:" or "Examples:".
void add_from_help(std::vector<example>& all, const std::string& command) {
    tool::arguments words{"--help"};
    if (!command.empty()) words.insert(words.begin(), command);
    std::vector<std::string> block;
    bool inside = false;
    for (const auto& line : lines_of(tool::rowlock(words).out)) {
        if (inside && line.starts_with("  ")) {
            block.push_back(line.substr(2));
            continue;
        }
        add_examples(all, "rowlock " + command + " --help", block);
        block.clear();
        inside = line.starts_with("Example");
    }
    add_examples(all, "rowlock " + command + " --help", block);
}

std::string quoted_words(const std::string& array) {
    std::string line;
    for (const auto& word : nlohmann::json::parse(array)) {
        line += (line.empty() ? "" : " ") + word.get<std::string>();
    }
    return line;
}

/// The command that a line of a unit file, a crontab or a container's manifest runs.
std::string command_in(const std::string& language, const std::string& line) {
    std::smatch found;
    static const std::regex unit{"^Exec[A-Za-z]*=(.*)"};
    static const std::regex crontab{"^([-*/,0-9]+ +){5}(.*)"};
    static const std::regex manifest{"^ *command: (\\[.*\\])"};
    if (language == "ini" && std::regex_search(line, found, unit)) return found[1];
    if (language == "crontab" && std::regex_search(line, found, crontab)) return found[2];
    if (language == "yaml" && std::regex_search(line, found, manifest)) {
        return quoted_words(found[1]);
    }
    return {};
}

void add_block(std::vector<example>& all, const std::string& from, const std::string& language,
               std::vector<std::string> block) {
    if (language != "sh") {
        for (auto& line : block) line = command_in(language, line);
    }
    for (auto& line : block) {
        for (std::size_t at = 0; (at = line.find("/usr/local/bin/", at)) != std::string::npos;) {
            line.erase(at, std::string{"/usr/local/bin/"}.size());
        }
    }
    add_examples(all, from, block);
}

void add_from_page(std::vector<example>& all, const std::filesystem::path& path) {
    std::vector<std::string> block;
    std::string language;
    bool inside = false;
    for (const auto& line : lines_of(contents(path.string()))) {
        if (!line.starts_with("```")) {
            if (inside) block.push_back(line);
            continue;
        }
        if (inside) add_block(all, path.filename().string(), language, block);
        block.clear();
        inside = !inside;
        language = line.substr(3);
    }
}

std::vector<example> all_examples() {
    std::vector<example> all;
    for (const char* command :
         {"", "run", "elect", "observe", "acquire", "renew", "release", "ls", "show", "held",
          "history", "break", "policy", "reap", "migrate", "fence-token", "doctor"}) {
        add_from_help(all, command);
    }
    const std::filesystem::path source{ROWLOCK_SOURCE_DIR};
    add_from_page(all, source / "README.md");
    add_from_page(all, source / "CONTRIBUTING.md");
    for (const auto& page : std::filesystem::directory_iterator{source / "docs"}) {
        if (page.path().extension() == ".md") add_from_page(all, page.path());
    }
    return all;
}

/// What the examples call: `rowlock` uses the test's database and listens on a free port, and each
/// command that an example protects leaves a line in `ran`. Written before another thread forks: a
/// child that inherits the open file would keep it from being executed (ETXTBSY).
class programs {
public:
    programs() {
        write("rowlock",
              "i=$# before=\n"
              "while [ $i -gt 0 ]; do\n"
              "  word=$1; shift; i=$((i - 1))\n"
              "  case $before in\n"
              "    --url) word=$EXAMPLE_URL ;;\n"
              "    --listen) word=${word%:*}:0 ;;\n"
              "  esac\n"
              "  before=$word\n"
              "  set -- \"$@\" \"$word\"\n"
              "done\n"
              "case \"$*\" in\n"
              "  *--listen*) ;;\n"
              "  serve*) set -- \"$@\" --listen 127.0.0.1:0 ;;\n"
              "esac\n"
              "unset ROWLOCK_URL_FILE\n"
              "ROWLOCK_URL=$EXAMPLE_URL exec " ROWLOCK_TOOL_PATH " \"$@\"\n");
        write("protected", "echo \"$0 $*\" >>\"$EXAMPLE_RAN\"\n");
        write("cat", "exec /bin/cat\n");
    }
    [[nodiscard]] std::string path_of(const char* name) const { return folder_ / name; }

private:
    void write(const char* name, const std::string& text) {
        std::ofstream{path_of(name)} << "#!/bin/sh\n" << text;
        REQUIRE(chmod(path_of(name).c_str(), 0755) == 0);
    }

    scratch folder_;
};

/// A folder in which examples run.
class stage {
public:
    explicit stage(const programs& has) {
        REQUIRE(mkdir((folder_ / "bin").c_str(), 0755) == 0);
        const auto link = [&](const char* program, const char* name) {
            std::filesystem::create_symlink(has.path_of(program), folder_ / name);
        };
        link("rowlock", "bin/rowlock");
        for (const char* name : {"report.sh", "export.sh", "book.sh", "write.sh", "deploy.sh",
                                 "scheduler", "bin/make", "bin/report", "bin/billing"}) {
            link("protected", name);
        }
        link("cat", "bin/less");
        link("cat", "bin/jq");
    }

    void start(const std::string& shell, const std::string& script, const std::string& url) {
        std::filesystem::remove(folder_ / "ran");
        process_.emplace(tool::arguments{shell, "-c", script},
                         tool::setting{.variables = {{"EXAMPLE_URL", url},
                                                     {"EXAMPLE_RAN", folder_ / "ran"},
                                                     {"HOME", folder_.path()},
                                                     {"PATH", folder_ / "bin:/usr/bin:/bin"}},
                                       .folder = folder_.path(),
                                       .before_exec = [] { setpgid(0, 0); }});
    }
    /// The exit code, or nullopt if the example still ran after `limit` and was killed.
    std::optional<int> end(std::chrono::seconds limit) {
        const bool ended = tool::eventually([&] { return process_->is_over(); }, limit);
        kill(-process_->id(), SIGKILL);
        const int code = process_->wait();
        said_ = process_->err();
        process_.reset();
        return ended ? std::optional{code} : std::nullopt;
    }
    [[nodiscard]] bool is_over() { return process_->is_over(); }
    [[nodiscard]] std::string ran() const { return contents(folder_ / "ran"); }
    [[nodiscard]] const std::string& said() const { return said_; }

private:
    scratch folder_;
    std::optional<tool::process> process_;
    std::string said_;
};

std::unique_ptr<tool::tables> fresh_tables() {
    auto in = tool::sqlite_tables();
    rowlock::record_history(in->source(), true);
    return in;
}

/// Another client, which holds every lock that the example took.
class holder_of_all {
public:
    explicit holder_of_all(const tool::tables& in)
        : locks_{rowlock::open(in.url()).with_tables({.prefix = in.prefix()})} {
        const auto all = nlohmann::json::parse(in.run({"ls", "--all", "--json"}).out)["locks"];
        for (const auto& each : all) {
            const std::string name = each["name"];
            REQUIRE(in.run({"break", "--now", "--yes", name}).code == 0);
            REQUIRE(in.run({"acquire", "--for", "1h", "-n", name}).code == 0);
        }
        for (const auto& each : rowlock::list_shared_mutexes(locks_)) {
            rowlock::shared_mutex lock{locks_, each.name};
            alone_.push_back(lock.acquire(rowlock::lock_mode::exclusive));
        }
        for (const auto& each : rowlock::list_semaphores(locks_)) {
            rowlock::semaphore limit{locks_, each.name};
            permits_.push_back(limit.acquire(each.capacity));
        }
        REQUIRE(all.size() + alone_.size() + permits_.size() > 0);
    }

private:
    rowlock::client locks_;
    std::vector<rowlock::mode_lease> alone_;
    std::vector<rowlock::permits> permits_;
};

constexpr const char* database_that_is_down = "postgresql://me@127.0.0.1:1/shop";

/// The commands that ran without their lock, while another client held it or the database was down.
/// Waits for one for at most `limit`.
std::string ran_without_the_lock(const programs& has, const std::vector<std::string>& shells,
                                 const std::string& script, std::chrono::seconds limit = 1s) {
    const auto in = fresh_tables();
    stage free{has};
    free.start(shells.front(), script, in->url());
    free.end(tool::patience);
    CAPTURE(free.said());
    const holder_of_all other{*in};
    // All run at once: most of them wait until they are killed.
    std::deque<stage> all;
    for (const auto& shell : shells) {
        all.emplace_back(has).start(shell, script, in->url());
        all.emplace_back(has).start(shell, script, database_that_is_down);
    }
    static_cast<void>(tool::eventually(
        [&] {
            return std::ranges::all_of(all, &stage::is_over) ||
                   std::ranges::any_of(all, [](const stage& each) { return !each.ran().empty(); });
        },
        limit));
    std::string ran;
    for (auto& each : all) {
        each.end(0s);
        ran += each.ran();
    }
    return ran;
}

}  // namespace

TEST_CASE("every example works while its lock is free") {
    const programs has;
    stage on{has};
    for (const auto& each : all_examples()) {
        for (const auto& shell : shells_of(each.script)) {
            const auto in = fresh_tables();
            CAPTURE(each.from);
            CAPTURE(each.script);
            CAPTURE(shell);
            on.start(shell, each.script, in->url());
            const auto says = [&](const char* word) {
                return each.script.find(word) != std::string::npos;
            };
            // Until they are interrupted.
            const bool goes_on =
                (says("rowlock observe") && !says("--once")) || says("rowlock serve");
            const auto code = on.end(goes_on ? 1s : tool::patience);
            CAPTURE(on.said());
            // Those answer that the lock is free, or that there is none of that name yet.
            const bool names_none = says("rowlock show nightly") || says("rowlock history nightly");
            const bool asks = says("rowlock held") || says("observe --once") ||
                              (names_none && !takes_a_lock(each.script));
            if (goes_on) {
                CHECK_FALSE(code.has_value());
            } else {
                CHECK(code == (asks ? 1 : 0));
            }
            CHECK(on.ran().empty() == !takes_a_lock(each.script));
        }
    }
}

TEST_CASE(
    "no example runs its protected command while another client holds the lock or the database is "
    "down") {
    const programs has;
    std::size_t count = 0;
    auto all = all_examples();
    std::erase_if(all, [](const example& each) { return !takes_a_lock(each.script); });
    // Several at once: each waits for a while for what must not happen.
    while (count < all.size()) {
        std::vector<std::pair<example, std::future<std::string>>> running;
        for (; count < all.size() && running.size() < 6; ++count) {
            running.emplace_back(all[count], std::async(std::launch::async, [&has, &all, count] {
                                     return ran_without_the_lock(has, shells_of(all[count].script),
                                                                 all[count].script);
                                 }));
        }
        for (auto& [each, ran] : running) {
            CAPTURE(each.from);
            CAPTURE(each.script);
            CHECK(ran.get() == "");
        }
    }
    // The examples of --help, README.md and deploying.md.
    CHECK(count >= 10);
}

TEST_CASE("a recipe that fails open is detected (control)") {
    const programs has;
    const std::string open =
        "read -r token grant <<<\"$(rowlock acquire --for 10m -n deploy)\" || exit\n./deploy.sh\n";
    CHECK(ran_without_the_lock(has, {"bash"}, open, 20s) != "");
    const std::string unchecked = "rowlock acquire --for 10m -n deploy\n./deploy.sh\n";
    CHECK(ran_without_the_lock(has, {"dash"}, unchecked, 20s) != "");
}
