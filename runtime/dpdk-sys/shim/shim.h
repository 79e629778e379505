/* What Pannier needs of DPDK beyond its exported functions: inline functions, and steps that use large structs. */
#ifndef PANNIER_SHIM_H
#define PANNIER_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* The processor that this thread runs on; negative where the system does not say. */
int pannier_processor(void);

/* The error number of this thread's last DPDK call that failed. */
int pannier_errno(void);

/* From the first call on, log lines come here. From now until `pannier_log_first` none is printed. */
void pannier_log_keep(void);

/* Copies the first line logged since `pannier_log_keep`, ended by a zero, into `size` bytes (at least one); an empty
 * line where there was none. Later lines are printed again. */
void pannier_log_first(char *line, size_t size);

/* Configures and starts a port with one queue each way, offloads off but for chains of mbufs, and lets it take frames
 * for any address. `chains` tells whether frames to send may be chains. Returns 0 or a negative error number. */
int pannier_start(uint16_t port, struct rte_mempool *pool, uint16_t descriptors, bool *chains);

/* An mbuf, or one of a chain. */
struct pannier_piece {
    struct rte_mbuf *mbuf;
    uint8_t *bytes;
    uint16_t length;
    /* Bytes of the mbuf in front of these and behind them that may be used by whoever keeps it. Both are 0 where it may
     * not be kept: it is in a chain or from another pool, somebody else has it too, or too few are left. */
    uint16_t before;
    uint16_t behind;
    /* Of how many more pieces the frame consists. */
    uint16_t more;
};

/* rte_eth_rx_burst on queue 0. `pieces` gets the first piece of each frame, on its way into the cache. Mbufs may be kept
 * while `pool` has more than `reserve` left, not counting those in threads' caches. */
uint16_t pannier_rx_burst(uint16_t port, struct rte_mempool *pool, uint32_t reserve, struct pannier_piece *pieces,
                          uint16_t most);

/* Goes on to the piece behind `piece`, which must not be the last. */
void pannier_next(struct pannier_piece *piece);

/* Gives an mbuf, with all that follow in its chain, back to its pool. */
void pannier_free(struct rte_mbuf *mbuf);

/* A frame to send. */
struct pannier_frame {
    /* The mbuf that it lies in, alone, or NULL. */
    struct rte_mbuf *mbuf;
    const uint8_t *bytes;
    uint32_t length;
};

/* Makes mbufs of frames: those that they lie in, else fresh ones that they are copied into, in chains where one is too
 * short. Returns how many there are: frames for which the pool has no mbuf are left out. */
uint16_t pannier_fill(struct rte_mempool *pool, const struct pannier_frame *frames, struct rte_mbuf **mbufs,
                      uint16_t count);

/* rte_eth_tx_burst on queue 0. */
uint16_t pannier_tx_burst(uint16_t port, struct rte_mbuf **mbufs, uint16_t count);

#endif
