#include "stress/board.hpp"

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "stress/history.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace stress {

std::int64_t capacity_of(std::size_t name) {
    return name == counted_names - 1
               ? semaphore_capacity
               : rowlock::protocol::permits_for(rowlock::lock_mode::exclusive);
}

void held_belief::check(std::int64_t margin) const {
    const auto ended_early = [&](const belief& one) {
        const std::int64_t looked = one.looked;
        return board_.members_changed > looked && one.ran - looked > margin;
    };
    struct seen {
        const belief* whose;
        std::int64_t begun;
        std::int64_t permits;
    };
    std::vector<seen> stood;
    std::int64_t sum = 0;
    const auto now = boot_time();
    for (const auto& each : board_.beliefs[name_]) {
        const auto begun = each.begun.load();
        const auto permits = each.permits.load();
        if (permits == 0 || each.until <= now || ended_early(each)) continue;
        stood.push_back({&each, begun, permits});
        sum += permits;
    }
    if (sum <= capacity_of(name_)) return;
    const auto later = boot_time();
    const bool still = std::ranges::all_of(stood, [&](const seen& one) {
        return one.whose->permits == one.permits && one.whose->until > later &&
               one.whose->begun == one.begun && !ended_early(*one.whose);
    });
    if (!still || board_.overlaps++ > 0) return;
    std::ostringstream text;
    for (const auto& one : stood) {
        text << one.whose - board_.beliefs[name_].data() << " for " << one.whose->until - later
             << " us, looked " << later - one.whose->looked << " us ago; ";
    }
    text.str().copy(board_.first_overlap.data(), board_.first_overlap.size() - 1);
}

// The file begins with zeros, which is what an empty board is.
mapped_board::mapped_board(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void* mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, sizeof(board)) == 0) {
        mapped = mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (file >= 0) close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error{"no shared memory in " + path};
    board_ = static_cast<board*>(mapped);
}

mapped_board::~mapped_board() {
    munmap(board_, sizeof(board));
}

}  // namespace stress
