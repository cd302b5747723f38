#include "cli/progress_line.hpp"

#include "cli/duration.hpp"
#include "cli/table.hpp"
#include "cli/text.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string_view>
#include <utility>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;

/// One less than the terminal has, so that no line wraps.
std::size_t columns() {
    winsize seen{};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &seen) != 0 || seen.ws_col < 2) return 79;
    return seen.ws_col - 1U;
}

/// Replaces the line on which the cursor is.
void write_line(std::string_view text) {
    const std::string all = fmt::format("\r{}\x1b[K", text);
    // A terminal that has gone is no reason to stop.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, all.data(), all.size());
}

}  // namespace

progress_line::progress_line(std::string doing) : doing_{std::move(doing)} {
    if (isatty(STDERR_FILENO) == 0) return;
    thread_ = std::jthread{[this](const std::stop_token& over) { run(over); }};
}

progress_line::~progress_line() = default;

void progress_line::set(std::string doing) {
    const std::lock_guard lock{mutex_};
    doing_ = std::move(doing);
    changed_.notify_all();
}

void progress_line::run(const std::stop_token& over) {
    constexpr auto patience = 1s;
    std::unique_lock lock{mutex_};
    changed_.wait_until(lock, over, began_ + patience, [] { return false; });
    if (over.stop_requested()) return;
    while (!over.stop_requested()) {
        const auto time =
            std::chrono::floor<std::chrono::seconds>(std::chrono::steady_clock::now() - began_);
        write_line(cut(fmt::format("{} … {}", escaped(doing_), to_text(time)), columns()));
        const auto shown = doing_;
        changed_.wait_for(lock, over, 500ms, [&] { return doing_ != shown; });
    }
    write_line("");
}

}  // namespace rowlock::cli
