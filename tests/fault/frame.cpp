#include "fault/frame.hpp"

#include "support/servers.hpp"
#include "support/silent_reporter.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

namespace fault {
namespace {

constexpr std::size_t most_words = 40;

double in_ms(duration time) {
    return std::chrono::duration<double, std::milli>{time}.count();
}

double share(const measure& one) {
    return one.bound_ms > 0 ? one.took_ms / one.bound_ms : 0;
}

/// The trial that counts failed assertions of the support libraries.
trial*& current() {
    static trial* one = nullptr;
    return one;
}

/// Replaces doctest's own output.
class assertions final : public support::silent_reporter {
public:
    explicit assertions(const doctest::ContextOptions&) {}
    void log_assert(const doctest::AssertData& what) override {
        if (!what.m_failed || current() == nullptr) return;
        current()->violation(std::string{"assertion failed: "} + what.m_expr + " is " +
                             what.m_decomp.c_str());
    }
    void log_message(const doctest::MessageData& what) override {
        if (current() == nullptr) return;
        const std::string text = what.m_string.c_str();
        if (what.m_severity == doctest::assertType::is_warn) {
            current()->note(text);
        } else {
            current()->violation(text);
        }
    }
};
REGISTER_REPORTER("fault", 0, assertions);

void attempt(trial& in, const std::function<void(trial&)>& action) {
    current() = &in;
    try {
        action(in);
    } catch (const not_prepared& failure) {
        in.must_alone(false, failure.what());
    } catch (const std::exception& failure) {
        in.violation(std::string{"exception: "} + failure.what());
    } catch (...) {  // doctest's, after an assertion that was already reported
        in.violation("given up after an assertion");
    }
    current() = nullptr;
}

int rounds_of(const row& which, scale size) {
    return size == scale::full ? which.full_rounds : which.quick_rounds;
}

row on_database(const family& all, support::backend which) {
    const auto with_tables = [which](const database_action& action) {
        return [which, action](trial& in) {
            support::lock_database database{which};
            if (!database.there()) {
                in.skip("no server");
                return;
            }
            action(in, database);
        };
    };
    row made{.id = all.id + "/" + id_of(which),
             .what = all.what,
             .quick_rounds = all.quick_rounds,
             .full_rounds = all.full_rounds,
             .bound = all.bound,
             .run = with_tables(all.run),
             .control_inside = all.control_inside,
             .neighbours = all.neighbours};
    if (all.control) made.control = with_tables(all.control);
    return made;
}

}  // namespace

/// Reads the results of a trial.
class report_of {
public:
    explicit report_of(const trial& which) : trial_{which}, lock_{which.mutex_} {}
    [[nodiscard]] int rounds() const { return trial_.rounds_; }
    [[nodiscard]] int violations() const { return trial_.violations_; }
    [[nodiscard]] int spoilt() const { return trial_.spoilt_; }
    [[nodiscard]] int unprotected() const { return trial_.control_violations_; }
    [[nodiscard]] const std::optional<measure>& worst() const { return trial_.worst_; }
    [[nodiscard]] const std::vector<std::string>& words() const { return trial_.words_; }
    [[nodiscard]] const std::string& skipped() const { return trial_.skipped_; }
    [[nodiscard]] bool in_time() const {
        return !trial_.worst_ || trial_.worst_->took_ms <= trial_.worst_->bound_ms;
    }

private:
    const trial& trial_;
    std::lock_guard<std::mutex> lock_;
};

void trial::made(int rounds) {
    const std::lock_guard lock{mutex_};
    rounds_ += rounds;
}

void trial::violation(const std::string& what) {
    const std::lock_guard lock{mutex_};
    ++violations_;
    if (words_.size() < most_words) words_.push_back("VIOLATION " + what);
}

bool trial::must(bool holds, const std::string& what) {
    if (!holds) violation(what);
    return holds;
}

void trial::violations(const std::vector<std::string>& all) {
    for (const auto& each : all) violation(each);
}

bool trial::must_alone(bool holds, const std::string& what) {
    if (holds) return true;
    const std::lock_guard lock{mutex_};
    ++spoilt_;
    if (words_.size() < most_words) words_.push_back("SPOILT " + what);
    return false;
}

void trial::must_be_none_alone(const std::vector<std::string>& all) {
    for (const auto& each : all) must_alone(false, each);
}

void trial::unprotected(const std::string& what, int times) {
    if (times == 0) return;
    const std::lock_guard lock{mutex_};
    control_violations_ += times;
    if (words_.size() < most_words) {
        words_.push_back("control: " + std::to_string(times) + " x " + what);
    }
}

void trial::took(duration time, const std::string& what) {
    took(time, what, bound_);
}

void trial::took(duration time, const std::string& what, duration bound) {
    const std::lock_guard lock{mutex_};
    const measure one{what, in_ms(time), in_ms(bound)};
    if (one.took_ms > one.bound_ms && words_.size() < most_words) {
        words_.push_back("TOO LATE " + what + " took " + std::to_string(one.took_ms) +
                         " ms, bound " + std::to_string(one.bound_ms) + " ms");
    }
    if (!worst_ || share(one) > share(*worst_)) worst_ = one;
}

void trial::took_mostly(std::vector<duration> all, const std::string& what, duration p95) {
    constexpr std::size_t enough = 20;  // with fewer, the p95 would be the longest
    if (all.size() < enough) return;
    std::sort(all.begin(), all.end());
    const auto at = all.size() * 19 / 20 - (all.size() % 20 == 0 ? 1 : 0);  // the nearest rank
    took(all[at], what + " (p95 of " + std::to_string(all.size()) + ")", p95);
}

void trial::note(const std::string& text) {
    const std::lock_guard lock{mutex_};
    if (words_.size() < most_words) words_.push_back(text);
}

void trial::skip(const std::string& why) {
    const std::lock_guard lock{mutex_};
    skipped_ = why;
}

std::vector<row>& rows() {
    static std::vector<row> all;
    return all;
}

std::string name_of(int i) {
    return "job-" + std::to_string(i);
}

on_databases::on_databases(const family& all) {
    for (const auto which : all.databases) rows().push_back(on_database(all, which));
}

std::string id_of(support::backend which) {
    switch (which) {
        case support::backend::postgresql:
            return "postgresql";
        case support::backend::mariadb:
            return "mariadb";
        case support::backend::sqlite:
            return "sqlite";
        default:
            return "soci";
    }
}

outcome run_here(const row& which, scale size, std::optional<int> rounds, unsigned seed) {
    const int count = rounds.value_or(rounds_of(which, size));
    const auto begin = std::chrono::steady_clock::now();
    outcome all;
    all.id = which.id;
    trial protected_{size, count, which.bound, seed};
    attempt(protected_, which.run);
    bool in_time = true;
    {
        const report_of report{protected_};
        all.rounds = report.rounds();
        all.violations = report.violations();
        all.spoilt = report.spoilt();
        all.worst = report.worst();
        all.words = report.words();
        all.skipped = report.skipped();
        in_time = report.in_time();
        if (which.control_inside) all.control_violations = report.unprotected();
    }
    if (which.control && all.skipped.empty()) {
        trial without{size, count, which.bound, seed};
        attempt(without, which.control);
        const report_of report{without};
        all.control_violations = all.control_violations.value_or(0) + report.violations() +
                                 report.spoilt() + report.unprotected() +
                                 (report.in_time() ? 0 : 1);
        for (const auto& each : report.words()) all.words.push_back("in the control: " + each);
    }
    if (support::missed_a_server() && all.skipped.empty()) all.skipped = "something is missing";
    if (all.rounds == 0 && all.skipped.empty()) all.words.emplace_back("no round was made");
    all.passed = all.violations == 0 && all.spoilt == 0 && in_time && all.rounds > 0 &&
                 all.skipped.empty() && all.control_violations.value_or(1) > 0;
    all.seconds = std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count();
    return all;
}

std::string to_line(const outcome& all) {
    nlohmann::json line{
        {"id", all.id},           {"rounds", all.rounds},   {"violations", all.violations},
        {"passed", all.passed},   {"skipped", all.skipped}, {"words", all.words},
        {"seconds", all.seconds}, {"spoilt", all.spoilt}};
    if (all.control_violations) line["control"] = *all.control_violations;
    if (all.worst) {
        line["worst"] = {{"what", all.worst->what},
                         {"took", all.worst->took_ms},
                         {"bound", all.worst->bound_ms}};
    }
    return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

outcome from_line(const std::string& line) {
    const auto read = nlohmann::json::parse(line);
    outcome all;
    all.id = read.at("id");
    all.rounds = read.at("rounds");
    all.violations = read.at("violations");
    all.spoilt = read.at("spoilt");
    all.passed = read.at("passed");
    all.skipped = read.at("skipped");
    all.words = read.at("words").get<std::vector<std::string>>();
    all.seconds = read.at("seconds");
    if (read.contains("control")) all.control_violations = read["control"].get<int>();
    if (read.contains("worst")) {
        all.worst = measure{read["worst"]["what"], read["worst"]["took"], read["worst"]["bound"]};
    }
    return all;
}

}  // namespace fault
