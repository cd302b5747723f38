// faults [OPTION…] [F1 F3/sqlite …]    all rows if none is named
//
//   --quick         few rounds: all rows within some minutes
//   --rounds N      the number of rounds of each row
//   --except ROW    leaves out this row, or all rows of this fault; may be repeated
//   --json FILE     writes the results, one object for each row
//   --list          lists the rows
//   --jobs N        rows at a time (4); two of those that measure milliseconds, one of those that
//                   take the whole machine; on a busy machine one
//   --seed N        the seed of random choices
//   --verbose       prints the notes of rows that passed, too
//
// Each row runs in its own process: one that crashes or hangs is a failed row. A row that broke no
// promise, but was late or hardly met its fault, is repeated alone, up to three times, and the last
// run counts. Exit status: 0 if no promise was broken, every bound was kept and every control found
// its fault; 1 if not; 64 for a mistake in the command line; 77 if rows were skipped for lack of a
// server.

#include "fault/frame.hpp"
#include "support/servers.hpp"

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <list>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::outcome;
using fault::row;
using fault::scale;
using steady = std::chrono::steady_clock;

constexpr int usage_error = 64;
constexpr int skipped_status = 77;  // ctest's SKIP_RETURN_CODE
constexpr int result_descriptor = 3;

struct command_line {
    scale size = scale::full;
    std::optional<int> rounds;
    std::string json;
    bool list = false;
    bool verbose = false;
    int jobs = 4;
    unsigned seed = std::random_device{}();
    std::string row;  ///< run this one here and report to the parent
    std::vector<std::string> names;
    std::set<std::string> excepted;
};

[[noreturn]] void refuse(const std::string& what) {
    throw std::invalid_argument{what};
}

template <typename Number>
Number number(const std::string& option, const std::string& text, Number least) {
    Number read{};
    const auto* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, read);
    if (error != std::errc{} || at != end || read < least) {
        refuse(option + " wants a number, not " + text);
    }
    return read;
}

command_line parse(const std::vector<std::string>& words) {
    command_line all;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const auto& word = words[i];
        const auto value = [&] {
            if (++i == words.size()) refuse(word + " wants a value");
            return words[i];
        };
        if (word == "--quick") {
            all.size = scale::quick;
        } else if (word == "--list") {
            all.list = true;
        } else if (word == "--verbose") {
            all.verbose = true;
        } else if (word == "--except") {
            all.excepted.insert(value());
        } else if (word == "--json") {
            all.json = value();
        } else if (word == "--rounds") {
            all.rounds = number(word, value(), 1);
        } else if (word == "--jobs") {
            all.jobs = number(word, value(), 1);
        } else if (word == "--seed") {
            all.seed = number(word, value(), 0U);
        } else if (word == "--row") {
            all.row = value();
        } else if (word.starts_with("-")) {
            refuse("no such option: " + word);
        } else {
            all.names.push_back(word);
        }
    }
    return all;
}

/// Sorts F9 before F10, and PostgreSQL before the others.
void sort_rows() {
    const auto key = [](const row& one) {
        int number = 0;
        const auto* begin = one.id.data() + 1;
        std::from_chars(begin, one.id.data() + one.id.size(), number);
        return std::pair{number, one.id.substr(0, one.id.find('/'))};
    };
    std::stable_sort(fault::rows().begin(), fault::rows().end(),
                     [&](const row& a, const row& b) { return key(a) < key(b); });
}

/// Whether a row of MariaDB also runs on MySQL: all do but Galera's.
bool is_for_mysql(const row& one) {
    return one.id.ends_with("/mariadb") && one.id != "F14/mariadb";
}

std::vector<row> chosen(const command_line& how) {
    std::set<std::string> wanted{how.names.begin(), how.names.end()};
    std::set<std::string> known;
    std::vector<row> all;
    for (const auto& each : fault::rows()) {
        const auto fault = each.id.substr(0, each.id.find('/'));
        known.insert({each.id, fault});
        if (how.excepted.contains(each.id) || how.excepted.contains(fault)) continue;
        if (support::mysql_alone() && !is_for_mysql(each)) continue;
        if (wanted.empty() || wanted.contains(each.id) || wanted.contains(fault)) {
            all.push_back(each);
        }
    }
    for (const auto& each : wanted) {
        if (!known.contains(each)) refuse("no such fault: " + each + "; --list shows all");
    }
    return all;
}

// --- in the row's own process ------------------------------------------------------------------

command_line& given() {
    static command_line one;
    return one;
}

outcome& found() {
    static outcome one;
    return one;
}

int run_one() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    doctest::Context context;
    context.setOption("reporters", "fault");
    context.setOption("no-skipped-summary", true);
    context.run();
    const std::string line = fault::to_line(found()) + "\n";
    return write(result_descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size())
               ? 0
               : 1;
}

// --- all of them -------------------------------------------------------------------------------

std::string text_of(double milliseconds) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), milliseconds < 10 ? "%.1f ms" : "%.0f ms",
                  milliseconds);
    return text.data();
}

void print_head() {
    std::printf("%-18s %7s %11s %8s %10s %10s  %-7s %s\n", "fault", "rounds", "violations",
                "control", "worst", "bound", "result", "");
    std::fflush(stdout);
}

/// Whether the row failed only in ways that a busy machine can cause: a bound, or a race, control
/// or preparation that hardly happened.
bool may_be_the_machine(const outcome& one) {
    return !one.passed && one.skipped.empty() && one.violations == 0 &&
           (one.rounds > 0 || one.spoilt > 0);
}

const char* verdict_of(const outcome& one) {
    if (one.passed) return "ok";
    if (!one.skipped.empty()) return "skipped";
    return may_be_the_machine(one) ? "SPOILT" : "FAILED";
}

void print(const outcome& one, const std::string& what, bool verbose) {
    const auto control = one.control_violations ? std::to_string(*one.control_violations) : "-";
    std::printf("%-18s %7d %11d %8s %10s %10s  %-7s %s (%.0f s)\n", one.id.c_str(), one.rounds,
                one.violations, control.c_str(),
                one.worst ? text_of(one.worst->took_ms).c_str() : "-",
                one.worst ? text_of(one.worst->bound_ms).c_str() : "-", verdict_of(one),
                one.skipped.empty() ? what.c_str() : one.skipped.c_str(), one.seconds);
    if (!one.passed && one.control_violations.value_or(1) == 0 && one.skipped.empty()) {
        std::printf("    the control found nothing: it has no teeth\n");
    }
    if (verbose || (!one.passed && one.skipped.empty())) {
        if (one.worst && !one.worst->what.empty()) {
            std::printf("    the worst: %s\n", one.worst->what.c_str());
        }
        for (const auto& each : one.words) std::printf("    %s\n", each.c_str());
    }
    std::fflush(stdout);
}

/// A row's process and its output.
class running {
public:
    running(const row& which, const command_line& how);
    running(const running&) = delete;
    running& operator=(const running&) = delete;
    ~running();

    [[nodiscard]] const row& which() const noexcept { return which_; }
    [[nodiscard]] bool over();
    [[nodiscard]] outcome result() const;

private:
    void listen();

    row which_;
    std::string folder_;
    pid_t id_ = -1;
    int pipe_ = -1;
    std::string told_;
    std::string end_;
    steady::time_point begin_ = steady::now();
    steady::time_point limit_;
};

running::running(const row& which, const command_line& how)
    : which_{which},
      folder_{(std::filesystem::temp_directory_path() / "rowlock-fault-XXXXXX").string()},
      limit_{steady::now() + (how.size == scale::full ? std::chrono::seconds{5400} : 300s)} {
    if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error{"no pipe"};
    pipe_ = ends[0];
    std::vector<std::string> words{"faults", "--row", which_.id, "--seed",
                                   std::to_string(how.seed)};
    if (how.size == scale::quick) words.emplace_back("--quick");
    if (how.rounds) {
        words.emplace_back("--rounds");
        words.push_back(std::to_string(*how.rounds));
    }
    std::vector<char*> pointers;
    for (auto& each : words) pointers.push_back(each.data());
    pointers.push_back(nullptr);
    const std::string output = folder_ + "/output";
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    posix_spawn_file_actions_adddup2(&files, ends[1], result_descriptor);
    const int failed =
        posix_spawn(&id_, "/proc/self/exe", &files, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    if (failed != 0) throw std::runtime_error{"could not start a process"};
}

running::~running() {
    if (id_ > 0) {
        kill(id_, SIGKILL);
        waitpid(id_, nullptr, 0);
    }
    close(pipe_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void running::listen() {
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0; (count = read(pipe_, bytes.data(), bytes.size())) > 0;) {
        told_.append(bytes.data(), static_cast<std::size_t>(count));
    }
}

bool running::over() {
    if (id_ < 0) return true;
    listen();
    int status = 0;
    if (waitpid(id_, &status, WNOHANG) == id_) {
        if (WIFSIGNALED(status)) end_ = "ended by signal " + std::to_string(WTERMSIG(status));
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
            end_ = "ended with exit status " + std::to_string(WEXITSTATUS(status));
        }
    } else if (steady::now() > limit_) {
        kill(id_, SIGKILL);
        waitpid(id_, nullptr, 0);
        end_ = "did not end in time";
    } else {
        return false;
    }
    id_ = -1;
    listen();
    return true;
}

outcome running::result() const {
    outcome all;
    all.id = which_.id;
    all.seconds = std::chrono::duration<double>{steady::now() - begin_}.count();
    if (end_.empty() && !told_.empty()) {
        all = fault::from_line(told_);
    } else {
        all.violations = 1;
        all.words.push_back(end_.empty() ? "said nothing" : end_);
    }
    if (!all.passed) {  // its output may help
        std::ifstream output{folder_ + "/output"};
        for (std::string line; std::getline(output, line) && all.words.size() < 80;) {
            all.words.push_back("| " + line);
        }
    }
    return all;
}

/// Runs `jobs` rows at a time, and prints each when it has ended.
std::vector<outcome> run_beside(const std::vector<row>& wanted, int jobs, const command_line& how) {
    std::vector<outcome> results;
    std::list<running> now;
    std::size_t next = 0;
    while (next < wanted.size() || !now.empty()) {
        while (next < wanted.size() && now.size() < static_cast<std::size_t>(jobs)) {
            now.emplace_back(wanted[next++], how);
        }
        for (auto each = now.begin(); each != now.end();) {
            if (!each->over()) {
                ++each;
                continue;
            }
            results.push_back(each->result());
            print(results.back(), each->which().what, how.verbose);
            each = now.erase(each);
        }
        std::this_thread::sleep_for(10ms);
    }
    return results;
}

/// Repeats rows that a busy machine may have spoiled, alone. The last result counts, since a defect
/// fails each time.
void run_again(std::vector<outcome>& results, const std::vector<row>& wanted,
               const command_line& how) {
    constexpr int most = 3;
    for (auto& one : results) {
        for (int i = 0; i < most && may_be_the_machine(one); ++i) {
            const auto which = std::find_if(wanted.begin(), wanted.end(),
                                            [&](const row& each) { return each.id == one.id; });
            std::printf("%s once more, alone:\n", one.id.c_str());
            one = run_beside({*which}, 1, how).at(0);
        }
    }
}

/// The share of a core that a thread gets here with one thread for each core: 1 on an idle machine.
double share_of_a_core() {
    const auto spin = [] {
        const auto until = steady::now() + 250ms;
        while (steady::now() < until) {
        }
        timespec used{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
    };
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::future<double>> all;
    for (unsigned i = 0; i < cores; ++i) all.push_back(std::async(std::launch::async, spin));
    double used = 0;
    for (auto& each : all) used += each.get();
    return used / cores / 0.25;
}

/// The number of rows at a time. On a busy machine rows would spoil each other's results.
int jobs_for(fault::beside neighbours, const command_line& how) {
    if (neighbours == fault::beside::none) return 1;
    const double share = share_of_a_core();
    if (share < 0.7) {
        std::printf("a thread gets %.0f %% of a core: one row at a time\n", share * 100);
        return 1;
    }
    return neighbours == fault::beside::some ? how.jobs : std::min(how.jobs, 2);
}

std::vector<outcome> run_all(std::vector<row> wanted, const command_line& how) {
    std::ranges::stable_sort(wanted, {}, &row::neighbours);
    print_head();
    std::vector<outcome> results;
    for (auto from = wanted.begin(); from != wanted.end();) {
        const auto until = std::ranges::find_if(from, wanted.end(), [&](const row& each) {
            return each.neighbours != from->neighbours;
        });
        const int jobs = jobs_for(from->neighbours, how);
        for (auto& one : run_beside({from, until}, jobs, how)) results.push_back(std::move(one));
        from = until;
    }
    run_again(results, wanted, how);
    return results;
}

void write_json(const std::string& path, const std::vector<outcome>& results) {
    std::ofstream file{path};
    file << "[";
    const char* joint = "\n";
    for (const auto& one : results) {
        nlohmann::ordered_json line;
        line["id"] = one.id;
        line["rounds"] = one.rounds;
        line["violations"] = one.violations;
        line["control_violations"] = nullptr;
        if (one.control_violations) line["control_violations"] = *one.control_violations;
        line["worst_ms"] = nullptr;
        line["bound_ms"] = nullptr;
        if (one.worst) {
            line["worst_ms"] = one.worst->took_ms;
            line["bound_ms"] = one.worst->bound_ms;
        }
        line["passed"] = one.passed;
        if (!one.skipped.empty()) line["skipped"] = one.skipped;
        file << joint << line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
        joint = ",\n";
    }
    file << "\n]\n";
    if (!file.flush()) throw std::runtime_error{"could not write " + path};
}

int judge(const std::vector<outcome>& results) {
    const auto count = [&](const auto& what) {
        return std::count_if(results.begin(), results.end(), what);
    };
    const auto passed = count([](const outcome& one) { return one.passed; });
    const auto skipped = count([](const outcome& one) { return !one.skipped.empty(); });
    const auto failed = static_cast<long>(results.size()) - passed - skipped;
    std::printf("%ld rows passed, %ld failed, %ld skipped\n", static_cast<long>(passed), failed,
                static_cast<long>(skipped));
    if (failed > 0) return 1;
    if (skipped > 0) return getenv("ROWLOCK_REQUIRE_SERVERS") != nullptr ? 1 : skipped_status;
    return 0;
}

int run_suite() {
    const auto wanted = chosen(given());
    if (given().list) {
        for (const auto& each : wanted) {
            std::printf("%-18s %s (%d rounds, quick %d)\n", each.id.c_str(), each.what.c_str(),
                        each.full_rounds, each.quick_rounds);
        }
        return 0;
    }
    if (!given().json.empty()) write_json(given().json, {});  // fails now rather than after hours
    const auto begin = steady::now();
    const auto results = run_all(wanted, given());
    if (!given().json.empty()) write_json(given().json, results);
    std::printf("seed %u, %.0f s\n", given().seed,
                std::chrono::duration<double>{steady::now() - begin}.count());
    return judge(results);
}

}  // namespace

TEST_CASE("one row") {
    for (const auto& each : fault::rows()) {
        if (each.id != given().row) continue;
        found() = fault::run_here(each, given().size, given().rounds, given().seed);
    }
}

int main(int argc, char** argv) {
    try {
        given() = parse({argv + 1, argv + argc});
        sort_rows();
        return given().row.empty() ? run_suite() : run_one();
    } catch (const std::invalid_argument& mistake) {
        std::cerr << "faults: " << mistake.what() << '\n';
        return usage_error;
    } catch (const std::exception& failure) {
        std::cerr << "faults: " << failure.what() << '\n';
        return 1;
    }
}
