//! Hash functions of `add` and `block/put`.

use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::multipart::Form;

/// Hash functions that `add` of Kubo 0.44 takes, with the content ID of a file with "hello" and a line end.
const HASHES: [(&str, &str); 59] = [
    ("sha1", "bafkrcfhvoljzn6xjebtcq4kpwlhab5zostzcldy"),
    ("sha2-256", "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN"),
    (
        "sha2-512",
        "bafkrgqhhyivzstcz3hhswshfjgy6ertgmnqeleynhwt4dlfsthi4hn7zgh4uvlsb5xncykzapi3ocd4lzogukir6ksdy6wzrnz6ohnv4aglcs",
    ),
    ("sha3-224", "bafkrohcqsoy6uh7nipzupnf7r6hgcm2ooukrmudohefq7jtxldjq"),
    ("sha3-256", "bafkrmiftctrije7k5hnlk6we6ddnrb553o7lqehjadmbqok2zzky5fsrnu"),
    ("sha3-384", "bafkrkmcftmuej7vg4outpkbzpqgwtqdntrwjipqvlwsfjrry6vbeffxjst6qgopkenbwp7ybisj3kgw3tuxa"),
    (
        "sha3-512",
        "bafkriqfmozv2mizqdyfnmpcizmx4i2orafc7mxe7d4up45q4pdbyn3jjlip5ugyf4kadkttca5l5rkb6awsf6zsdrxltij4gnda4e6wg6jyva",
    ),
    (
        "shake-256",
        "bafkrsqgbjrcs44zz6rw3oyzvhnfilnggrd5sbfx7vpocu5l6saa3c4nx46i35n25grwbtspffgk6goz7oftkeoflsbl5xsauud7eeyxhzwscm",
    ),
    ("keccak-256", "bafkrwia5mntaaiffwudc7m25t6bk7kavqfccfaoegnbxmovr2naotbq3vy"),
    (
        "keccak-512",
        "bafkr2qdwxzmhctrvslygg4zrpi476k2qw3h7p6glwps44nadt7ekz4gtotzv3eooqyle44nstdrij2gis4utp32sfrxunflbanun47gput4u6",
    ),
    ("blake3", "bafkr4ieojr6bxgo37viopkkrqx7k2xxbish2sbfc7xlxr2xv6ln72yu2te"),
    ("dbl-sha2-256", "bafkvmihmwzn3td45sbnxarmjq3bz7s5no4k6l4x4yoy7a53h27ed4jbyzq"),
    ("identity", "bafkqabtimvwgy3yk"),
    ("blake2b-160", "bafkzjzacctjppgn3syijncro7khxnawv6ly5iuld24"),
    ("blake2b-168", "bafkzlzaccui3igpl24hkctvtlhulzxlpr7yqcis7q2hq"),
    ("blake2b-176", "bafkznzacc32gq7vxkadwauvgb6tbckcx6ca4myteo6264"),
    ("blake2b-184", "bafkzpzacc47frkl6e75rajdz7oiuvzvkurxxsbkhfat5f3y"),
    ("blake2b-192", "bafkzrzacdbaokgwhot7lbyoqjfvuctd3hxojslxvuybwubsv"),
    ("blake2b-200", "bafkztzacdgmb3y64zf4heolxmdhmn7v4sx2cgyin57jhswip7a"),
    ("blake2b-208", "bafkzvzacdim4lgmf2hoooccryxdoxyjdkefos6qbt3qk565oiapq"),
    ("blake2b-216", "bafkzxzacdoomqzrzitohooszcql57xqlv4zpjnl2ktt7qtds6p2x2"),
    ("blake2b-224", "bafkzzzacdtvvtkpeafvrb5bzzzcpkbleyljdabllz4a5kofr2k7wuzy"),
    ("blake2b-232", "bafkz3zacdvcf5eihtsl2y7vfwcc36gjvy46q3y32j4iamrgf346wt5kb"),
    ("blake2b-240", "bafkz5zacdzrxnhfks5ft3bitqnwwo6yrbshdp6jkfo2wtxmkkmlmm5fyzm"),
    ("blake2b-248", "bafkz7zacd4yreseq3golmi5dmcwjkbeb3rcuw3fzhcynh5i66n7btpjxugca"),
    ("blake2b-256", "bafk2bzacecj35tdotcbcchb6ynyizfn422n2vn53lhd7jpeezzrxxcffgs3yg"),
    ("blake2b-264", "bafk2dzacehniyk6moxtvwihkuo3z642pk2givqxvk72r2imslvgocoisblhynma"),
    ("blake2b-272", "bafk2fzacejthr5rx6dkgc7icd4fvg43s6cuqhthl5ot46tzqpvooyoc3kccev3ix"),
    ("blake2b-280", "bafk2hzacemr676zfubnuahaszg736qgjozpjyvhn4gtzpm6xmw5jaqjyzvhzp6onhq"),
    ("blake2b-288", "bafk2jzacetkqx73tj5xpz4s7onvxsfykfkxejntomxfbo7pfgvqnoma7pfiss5lv2f7q"),
    ("blake2b-296", "bafk2lzaceunaw4hrxifbrg7eemncl54vpnnu5qrgkuqbalbo3qis4hohphselyph6rm5a"),
    ("blake2b-304", "bafk2nzace3c2cjkoxus6jpnrucrmcyij5flxjldbz2c6e2o5ochgektbpophxccc526v64a"),
    ("blake2b-312", "bafk2pzace5kneynu7xbdlcku6jwbjvuwy6oyqqauu7u67tws3byqyidafjrjji7aukz7dr2n"),
    ("blake2b-320", "bafk2rzacfazddpxauza4opmlomcoeknhjevt2zopei3iue6dzu2f2lx2zk37mck2lo2rbe7dde"),
    ("blake2b-328", "bafk2tzacfe7nbylw46gezlmh74xvkyeby44ujq4blblv5xcls3xj5qxv3v23fwu6v5gehsnl5qqa"),
    ("blake2b-336", "bafk2vzacfkayphhlbwiptocjcc57yrahkuklmsrpgqobly3sqzkm4zttnqd6whtk7ixcit2oxxkvc"),
    ("blake2b-344", "bafk2xzacforo4ofq4f65etcsuln5t2hy2qdi35wdut2f3x35cu32ttbrsa2j2qzip36guvkpi2ojbki"),
    ("blake2b-352", "bafk2zzacfruwstajvsyxt3g62j3v6uhjlivouuvfbbqfjofj2ykqr7iryq33w2dauc3wd5rmeksi34hj"),
    ("blake2b-360", "bafk23zacfuojtvwphnajsns44lfl3u4c2gziouadoob75qw7wnshdlrcyprzxjrmrzgjpxrdyyz4wsrv5i"),
    ("blake2b-368", "bafk25zacfytdwhv6lqccejc2guv66e6lywde6dzimr3yfdx4iaeruuytzmlmjzkwn4a3tble5qbxpaje5aea"),
    ("blake2b-376", "bafk27zacf5s42mwhzyz6pruiedpnp26e4kfow5xpdngl2dwwwl3uoakindbvnlcb7i5dx57f5cxuexohcjjem"),
    ("blake2b-384", "bafk3bzacgagcc2ja2dmxucp5sdlgidl54e5jkc5wx53flk2juwgofw2yvjj7kct2taippr5xvfukodq6yl46mti"),
    ("blake2b-392", "bafk3dzacgefw6udw4ybs7qj2puvv6zurmyf2r5igx6eu5prztg4cvmjtpyfhd2nxaaaikcrdalxlsucu2rcba5vg"),
    ("blake2b-400", "bafk3fzacgkfskqn33kami4cawv4tp7e3nvhbqd7ufpfr4z6feo57uf4ynczeo46knf54qqdrasdgvqzuiuoth4v2zi"),
    ("blake2b-408", "bafk3hzacgmfykwbvahd6ghnw2xeqjr4rkd6cgdu7txclxxmhdechf6qqn2deihfw4g3djed3xxdykdyvi7rqztoyjsja"),
    ("blake2b-416", "bafk3jzacgqlxg2onvhcg7w6lfj6gqoev2xm4yslnaes66qzevlvty2c3gcatgtjdhdllhsyw6vhy37dpszx55hvcyppke"),
    ("blake2b-424", "bafk3lzacgwa7rw2mk3pgwkpkmjmbsgejrwt5rijsnv32yrqzcxb7vnbdko3vopcdc464avbl5cunqsal3elipdwyka53xry"),
    (
        "blake2b-432",
        "bafk3nzacg3evghczxugj2pxfrlmay2u6rq4uq4cticvejgwfkhuuxjptkbehtysim5fw272ea3fzeyzj763ukp2wriijmlhe",
    ),
    (
        "blake2b-440",
        "bafk3pzacg6vi2yku6kqziulzhm6mdn6gov3mylwrzgoeohc57k2nupnjlnbpzr2o2gqu5aroozngp5wacjkbfdqxn6ukltn7me",
    ),
    (
        "blake2b-448",
        "bafk3rzachav4oumh7d57u6on2rikd7spwxx4fkfwtjo322thqlygsdefykwwjgy6gyesel57gidtl75gdixgn5xubwuk7sane6oq",
    ),
    (
        "blake2b-456",
        "bafk3tzachfr6i2jtair32j3wv52nwffuicoznrhtencm6gtnmsw3fsi6jzbgvfuv3kuuulgqeqehuv6jmltabfrxago6rlkpqxtks",
    ),
    (
        "blake2b-464",
        "bafk3vzachjfwsv7m4jeodk6kwctpxmfwq6bkz6tuhwe75v22j3p2dhvfj7rourvudk2grcu7qmoguf27chd3navcxed7jqt4mffrmha",
    ),
    (
        "blake2b-472",
        "bafk3xzachpsxh42iui64p2uvjjggvwy3ubnb6hpukxasmxulnzhtoww45gawcahflyngftir5wjnpwjrsuxpfoq5ieopc75tbqcqch3z",
    ),
    (
        "blake2b-480",
        "bafk3zzachtnbiljygehzvigayboeztjjrzggumcy6vvz65peak2cwt64przh4wynvanqikstnpj2xqygekypriy24cy3qzasvcksvvnbeq",
    ),
    (
        "blake2b-488",
        "bafk33zachwsxhi5g5qjlfm3fqgtzmw5asnge67mjbderwzdw3325x2weiyn65phpcdz4yrxncbxj6dxjkbh5waogtjna5v7ulzfwitrhmm6q",
    ),
    (
        "blake2b-496",
        "bafk35zach2jrf5v3qsixejiqpxqaw2dnkktcbklthhpzhsyf4mkya3lnq2fymlsb32h7o7bj2nogolubujt373xr5sffjejguf5cyeku27psu",
    ),
    (
        "blake2b-504",
        "bafk37zach56dis7mmjkyf4noh4tuheamehz3h76nyqswdfj2xkjpvwr66gzd5ngqlckmakkj752263t2qhr2us7e55ijbhujaeoosslquoolv7q",
    ),
    (
        "blake2b-512",
        "bafk4bzacid3azzec4xgbekpttvytcmlrvdm7jsr2q7ignp2lebpp7njidevhl4kpgjy6fqnjbyo6kpzhlngupe7o6l26ghvjbuwofhjojaodmq27",
    ),
    ("blake2s-256", "bafk6bzacea4wtm4smzkamwlgw34ntjsxrgypo3kw4hrkwz65st5ko4evsgd4u"),
];

#[tokio::test(flavor = "multi_thread")]
async fn hash_functions_give_the_content_ids_of_kubo() {
    let gateway = TestGateway::start().await;
    for (hash, cid) in HASHES {
        assert_eq!(gateway.add(&format!("pin=false&hash={hash}"), "hello\n").await, cid, "{hash}");
        assert_eq!(gateway.rpc_bytes(&format!("cat?arg={cid}")).await, "hello\n", "{hash}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hash_of_dag_put_may_be_a_multicodec_number() {
    let gateway = TestGateway::start().await;
    let put = async |hash: &str| gateway.post_form(&format!("dag/put?hash={hash}"), Form::new().file("f", NODE)).await;
    // The content IDs that Kubo 0.44 prints.
    for (hash, cid) in [
        ("30", "bafyr4iedapixc2osvwpnatniup46dl6oettqxmlmqyurwj7eqqfiagip5m"),
        ("0x1e", "bafyr4iedapixc2osvwpnatniup46dl6oettqxmlmqyurwj7eqqfiagip5m"),
        ("blake3", "bafyr4iedapixc2osvwpnatniup46dl6oettqxmlmqyurwj7eqqfiagip5m"),
        ("0", "bafyqadfcmfq2cylcqiaqeyl2ae"),
    ] {
        assert_eq!(ndjson(put(hash).await).await[0]["Cid"]["/"], cid, "{hash}");
    }
    for (hash, why) in [
        ("1", "invalid cid: unknown multihash code 1 (0x1): no such hash registered"),
        ("0x55", "invalid cid: unknown multihash code 85 (0x55): no such hash registered"),
        ("nope", "unknown multicodec: \"nope\""),
    ] {
        assert_eq!(rpc_failure(put(hash).await).await, why, "{hash}");
    }
}

/// A node in dag-json.
const NODE: &str = r#"{"z":1,"a":{"b":[1,2]}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn digests_are_truncated() {
    let gateway = TestGateway::start().await;
    let put = |query: &'static str| gateway.post_form(query, Form::new().file("f", "block data"));
    let stat = ndjson(put("block/put?mhlen=20").await).await;
    let cid = stat[0]["Key"].as_str().unwrap();
    assert_eq!(gateway.rpc_bytes(&format!("block/get?arg={cid}")).await, "block data");
    for (query, why) in [
        ("block/put?mhlen=19", "digest too small: sha2-256 digest got 19 bytes, minimum 20"),
        ("block/put?mhlen=33", "requested length was too large for digest"),
        ("block/put?mhtype=nope", "unrecognized multihash function: nope"),
    ] {
        let message = rpc_failure(put(query).await).await;
        assert!(message.starts_with(why), "{query}: {message}");
    }
}
