// tests/bench/simgrid/workloads.cpp - two of our workloads in SimGrid 3 (libsimgrid-dev), to be timed beside ours.
//
// usage: workloads w1|w2            prints "CPU_SECONDS MAKESPAN_SECONDS"
// CPU time is that of Engine::run alone: the platform, its routes and the actors are there before the clock starts.
//
// w1: strict 1F1B, 64 stages x 1,024 microbatches; forward 1 ms, backward 2 ms, messages of 10 MB over one link per
//     direction and pair of neighbours (25 GB/s, 10 us). One actor a stage; computing is sleeping, sending is detached.
// w2: 64 hosts with an up and a down link of 12.5 GB/s, one backbone of 400 GB/s, no latency. Flow i of 10,000 starts
//     at i x 0.1 ms. One actor starts them all, detached.
//
// Model: CM02 without TCP's corrections (weights, window, cross traffic, factors of bandwidth and latency): plain max-min
// sharing, the fastest of SimGrid's models that knows links. Of its two ways to keep actions up to date the one that was
// faster here: lazy for w1 (0.48 s against 0.69), full for w2 (0.8 s against 1.4 for the first 2,000 flows).
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

static double cpu_seconds()
{
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

static constexpr int stages = 64, microbatches = 1024;

struct stage {
    int me;
    sg::Mailbox *act_in, *act_out, *grad_in, *grad_out;

    void forward() const
    {
        if (act_in) act_in->get<int>();
        sg::this_actor::sleep_for(1e-3);
        if (act_out) act_out->put_init(&token, 10000000)->detach();
    }
    void backward() const
    {
        if (grad_in) grad_in->get<int>();
        sg::this_actor::sleep_for(2e-3);
        if (grad_out) grad_out->put_init(&token, 10000000)->detach();
    }
    void operator()() const
    {
        /* Receives are posted from the start: a message moves when it is sent, not when it is asked for. */
        for (auto *box : {act_in, grad_in})
            if (box) box->set_receiver(sg::Actor::self());
        int warm = std::min(microbatches, stages - me - 1), f = 0, b = 0;
        while (f < warm) forward(), f++;
        while (f < microbatches) forward(), f++, backward(), b++;
        while (b < microbatches) backward(), b++;
    }
    static int token;
};
int stage::token;

static void make_w1()
{
    auto *zone = sg::create_full_zone("pipeline");
    std::vector<sg::Host *> hosts;
    for (int i = 0; i < stages; i++)
        hosts.push_back(zone->create_host("d" + std::to_string(i), 1e9));
    for (int i = 0; i + 1 < stages; i++)
        for (int back = 0; back < 2; back++) {
            auto *link = zone->create_link("l" + std::to_string(2 * i + back), 25e9)
                             ->set_latency(10e-6)
                             ->seal();
            zone->add_route(hosts[i + back]->get_netpoint(), hosts[i + 1 - back]->get_netpoint(),
                            nullptr, nullptr, {sg::LinkInRoute(link)}, false);
        }
    zone->seal();
    for (int i = 0; i < stages; i++) {
        auto box = [](const char *what, int n) {
            return sg::Mailbox::by_name(what + std::to_string(n));
        };
        stage s{i, i > 0 ? box("a", i) : nullptr, i + 1 < stages ? box("a", i + 1) : nullptr,
                i + 1 < stages ? box("g", i) : nullptr, i > 0 ? box("g", i - 1) : nullptr};
        sg::Actor::create("stage", hosts[i], s);
    }
}

static constexpr int flows = 10000;

static void make_w2()
{
    auto *zone = sg::create_full_zone("team");
    std::vector<sg::Host *> hosts;
    std::vector<sg::Link *> up, down;
    auto *backbone = zone->create_link("backbone", 4e11)->set_latency(0)->seal();
    for (int i = 0; i < 64; i++) {
        hosts.push_back(zone->create_host("h" + std::to_string(i), 1e9));
        up.push_back(zone->create_link("up" + std::to_string(i), 12.5e9)->set_latency(0)->seal());
        down.push_back(
            zone->create_link("down" + std::to_string(i), 12.5e9)->set_latency(0)->seal());
    }
    for (int i = 0; i < 64; i++)
        for (int k = 0; k < 64; k++)
            if (i != k)
                zone->add_route(
                    hosts[i]->get_netpoint(), hosts[k]->get_netpoint(), nullptr, nullptr,
                    {sg::LinkInRoute(up[i]), sg::LinkInRoute(backbone), sg::LinkInRoute(down[k])},
                    false);
    zone->seal();
    sg::Actor::create("starter", hosts[0], [hosts] {
        for (int i = 0; i < flows; i++) {
            int src = i % 64, dst = (37 * i + 13 * (i / 64) + 11) % 64;
            if (dst == src) dst = (dst + 1) % 64;
            sg::this_actor::sleep_until(i * 1e-4);
            sg::Comm::sendto_init(hosts[src], hosts[dst])
                ->set_payload_size((1 + i % 7) * 100000000ULL)
                ->detach();
        }
    });
}

int main(int argc, char **argv)
{
    sg::Engine engine(&argc, argv);
    bool w1 = argc == 2 && !strcmp(argv[1], "w1"), w2 = argc == 2 && !strcmp(argv[1], "w2");
    sg::Engine::set_config("network/model:CM02");
    sg::Engine::set_config(w1 ? "network/optim:Lazy" : "network/optim:Full");
    sg::Engine::set_config("network/TCP-gamma:0");
    sg::Engine::set_config("network/weight-S:0");
    sg::Engine::set_config("network/bandwidth-factor:1");
    sg::Engine::set_config("network/latency-factor:1");
    sg::Engine::set_config("network/crosstraffic:0");
    if (w1)
        make_w1();
    else if (w2)
        make_w2();
    else
        return fprintf(stderr, "usage: %s w1|w2\n", argv[0]), 2;
    double start = cpu_seconds();
    engine.run();
    printf("%.9g %.12g\n", cpu_seconds() - start, sg::Engine::get_clock());
    return 0;
}
