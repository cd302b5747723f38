#include "shrink.hpp"

#include <algorithm>

namespace rowlock::sim {

item_set shrink(item items, const std::function<bool(const item_set&)>& fails,
                const std::function<bool()>& more) {
    item_set without;
    for (item size = std::max<item>(items / 2, 1);; size /= 2) {
        bool smaller = true;
        // At the smallest size until nothing more can go.
        while (smaller) {
            smaller = false;
            for (item first = 1; first <= items; first += size) {
                item_set candidate = without;
                for (item i = first; i < first + size && i <= items; ++i) candidate.insert(i);
                if (candidate.size() == without.size()) continue;
                if (!more()) return without;
                if (!fails(candidate)) continue;
                without = std::move(candidate);
                smaller = size == 1;
            }
        }
        if (size == 1) return without;
    }
}

}  // namespace rowlock::sim
