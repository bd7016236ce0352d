// SPDX-License-Identifier: Apache-2.0
// deck: the cards of one queue, fetched ahead, with the place of the curator in them. It keeps the
// cards behind for a way back.

import {cards} from "/pages/api.js";
import {isUnsent} from "/pages/outbox.js";

const AHEAD = 8; // cards that are there before they are wanted
const PAGE = 10;
const BEHIND = 200; // cards that stay for the way back

export function deckOf(batch, query) {
  const held = [], judged = new Set();
  let at = 0, after = null, hasMore = true, asking = null, isClosed = false, first = null,
      reading = null;

  async function ask() {
    const page = await cards(batch, {...query, limit: PAGE, after});
    if (isClosed) return;
    reading = page.is_made ? null : page;
    if (reading) return;
    first ??= {total: page.total, judged: page.total - page.left};
    first.total = page.total;
    // the server does not know these judgements yet
    held.push(
      ...page.data.filter(card => query.judged === "any" || !isUnsent(batch, card.custom_id)));
    after = page.after ?? null;
    hasMore = page.has_more && page.data.length > 0;
  }

  /** Fetches on while too few cards lie ahead; one request at a time. */
  async function fill() {
    if (asking) return asking;
    reading = null;
    asking = (async () => {
      while (!isClosed && hasMore && !reading && held.length - at < AHEAD) await ask();
    })();
    try {
      await asking;
    } finally {
      asking = null;
    }
  }

  return {
    fill,
    close: () => isClosed = true,
    current: () => held[at] ?? null,
    hasBack: () => at > 0,
    /**
       The page with the server's progress (indexed, lines), while it reads the answers and has no
       cards; else null.
     */
    reading: () => reading,
    isEnd: () => at >= held.length && !hasMore,
    /** One card on; the next one may not be fetched yet, or not exist. */
    forward() {
      if (at < held.length) at++;
      if (at > BEHIND) held.splice(0, at - BEHIND), at = BEHIND;
    },
    back() {
      if (at > 0) at--;
    },
    /** Counts a card whose judgement the server has kept. */
    count(card, wasJudged) {
      if (!wasJudged) judged.add(card.line);
    },
    progress: () => ({total: first?.total ?? null, judged: (first?.judged ?? 0) + judged.size}),
  };
}
