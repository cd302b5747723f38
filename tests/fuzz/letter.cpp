// What is said to a session, by mail or by NOTIFY, is understood as it was meant; anybody on the
// machine may send something else.

#include "fuzz/target.hpp"
#include "strategy/queue_protocol.hpp"

#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using rowlock::strategy::said_grant;
    using rowlock::strategy::said_of;
    using rowlock::strategy::understood;
    const std::string foreign = fuzz::input{data, size}.all();
    if (const auto heard = understood(foreign)) {
        const auto spaces = std::ranges::count(foreign, ' ');
        fuzz::require(spaces >= 1, "two words at least", foreign);
        const std::string same = said_of({.session = 0,
                                          .grant_id = heard->grant_id,
                                          .token = heard->token,
                                          .asynchronous = heard->asynchronous});
        fuzz::require(understood(same) == heard, "what was understood can be said", foreign);
    }
    fuzz::input numbers{data, size};
    const said_grant meant{numbers.number(), numbers.number(), numbers.byte() % 2 == 1};
    const std::string said = said_of({.session = numbers.number(),
                                      .grant_id = meant.grant_id,
                                      .token = meant.token,
                                      .asynchronous = meant.asynchronous});
    fuzz::require(understood(said) == meant, "what is said is understood", said);
    fuzz::require(said.size() <= 128, "it fits into a letter", said);
    return 0;
}
