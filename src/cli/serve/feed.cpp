#include "cli/serve/feed.hpp"

#include <chrono>
#include <utility>

namespace rowlock::cli::serving {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

/// So often a page hears of the server, and the server of a page that has gone.
constexpr auto silence = 10s;
/// So often a stream looks whether its page is there.
constexpr auto look = 1s;

bool write_event(const std::function<bool(std::string_view)>& write, std::string_view text) {
    return write("data: ") && write(text) && write("\n\n");
}

}  // namespace

bool feed::send(const std::function<bool(std::string_view)>& write) {
    const auto now = from_.after(before_ == nullptr ? 0 : before_->version, look);
    if (now == nullptr && from_.is_stopped()) return false;
    if (now == nullptr && steady_clock::now() - written_ < silence) return true;
    written_ = steady_clock::now();
    if (now == nullptr) return write(":\n\n");
    const auto before = std::exchange(before_, now);
    return write_event(write, before == nullptr ? now->text : changes_text(*now, *before));
}

}  // namespace rowlock::cli::serving
